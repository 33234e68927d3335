//! One line about the connections a sandbox's network policy refused: hosts, counts, reasons, and how to allow them.

use std::net::IpAddr;

use sandbox::{HostPattern, Network, RefusalReason, RefusedConnections};

/// Hosts that are named.
const MAX_NAMED: usize = 5;

/// The line; `None` if nothing was refused. Host names are untrusted: the caller escapes control characters, and only
/// plain names get into the option to copy.
pub(crate) fn refused_line(refused: &[RefusedConnections], network: &Network) -> Option<String> {
    let mut refused: Vec<_> = refused.iter().collect();
    refused.sort_by_key(|one| std::cmp::Reverse(one.count));
    let named: Vec<_> = refused.iter().take(MAX_NAMED).map(|one| described(one)).collect();
    let mut line = format!("the network policy refused connections: {}", named.join(", "));
    match refused.len().saturating_sub(MAX_NAMED) {
        _ if refused.is_empty() => return None,
        0 => {}
        1 => line.push_str(", and to 1 more host"),
        more => line.push_str(&format!(", and to {more} more hosts")),
    }
    let mut hosts = match network {
        Network::Allow(hosts) => hosts.clone(),
        // A list of hosts would take away all others.
        Network::Internet => return Some(line),
        Network::None | Network::Full => Vec::new(),
    };
    let known = hosts.len();
    for pattern in refused.into_iter().take(MAX_NAMED).filter_map(pattern) {
        if !hosts.contains(&pattern) {
            hosts.push(pattern);
        }
    }
    if hosts.len() > known {
        line.push_str(&format!("; to allow them, use --network {}", Network::Allow(hosts)));
    }
    Some(line)
}

fn described(one: &RefusedConnections) -> String {
    let RefusedConnections { host, port, reason, count } = one;
    let why = match reason {
        RefusalReason::NotAllowed => "not among the allowed hosts",
        RefusalReason::PrivateAddress => "leads to this machine or its private network",
        RefusalReason::NotPublic => "not a public address",
    };
    let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
    match port {
        0 if *count == 1 => format!("1 lookup of {host} ({why})"),
        0 => format!("{count} lookups of {host} ({why})"),
        port => format!("{count} to {host}:{port} ({why})"),
    }
}

/// The pattern that would allow these connections. None for link-local addresses, where clouds keep credentials: whoever
/// means to allow them can write it.
fn pattern(one: &RefusedConnections) -> Option<HostPattern> {
    let RefusedConnections { host, port, reason, .. } = one;
    let is_default = matches!(port, 80 | 443) && *reason == RefusalReason::NotAllowed;
    let text = match host.parse() {
        Ok(IpAddr::V4(ip)) if ip.is_link_local() => return None,
        Ok(IpAddr::V6(ip)) if ip.is_unicast_link_local() => return None,
        Ok(IpAddr::V6(ip)) => format!("[{ip}]"),
        // Not a pattern that the program could make as wide as it likes.
        Err(_) if host.contains('*') => return None,
        _ => host.clone(),
    };
    let pattern = if is_default { text } else { format!("{text}:{port}") };
    pattern.parse().ok().filter(|pattern: &HostPattern| pattern.matches(host, *port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(host: &str, port: u16, count: u64) -> RefusedConnections {
        RefusedConnections { host: host.into(), port, reason: RefusalReason::NotAllowed, count }
    }

    #[test]
    fn the_line_names_hosts_and_the_option() {
        let network = "allow=a.com".parse().unwrap();
        assert_eq!(refused_line(&[], &network), None);
        let private = RefusedConnections {
            reason: RefusalReason::PrivateAddress,
            ..refused("intra", 443, 1)
        };
        let line = refused_line(&[private, refused("packages.example", 443, 5)], &network).unwrap();
        assert_eq!(
            line,
            "the network policy refused connections: 5 to packages.example:443 (not among the allowed hosts), 1 to intra:443 \
             (leads to this machine or its private network); to allow them, use --network \
             allow=a.com,packages.example,intra:443"
        );
        // The suggested policy allows what was refused.
        let policy: Network = line.rsplit(' ').next().unwrap().parse().unwrap();
        let Network::Allow(hosts) = policy else { panic!() };
        assert!(hosts.iter().any(|pattern| pattern.allows_private("intra", 443)));
    }

    #[test]
    fn no_option_makes_private_addresses_public() {
        let private = |host, port, count| RefusedConnections {
            reason: RefusalReason::NotPublic,
            ..refused(host, port, count)
        };
        let all = [private("192.168.0.1", 22, 3), private("db.corp.example", 0, 2)];
        assert_eq!(
            refused_line(&all, &Network::Internet).unwrap(),
            "the network policy refused connections: 3 to 192.168.0.1:22 (not a public address), 2 lookups of \
             db.corp.example (not a public address)"
        );
    }

    #[test]
    fn hostile_hosts_do_not_get_into_the_option() {
        let network = "allow=a.com".parse().unwrap();
        let hosts = ["x;rm -rf ~", "$(id)", "*.com", "169.254.169.254", "fe80::1", "a,b.com", "[x"];
        for host in hosts {
            let line = refused_line(&[refused(host, 80, 1)], &network).unwrap();
            assert!(!line.contains("--network"), "{line}");
        }
        let many: Vec<_> = (0..9).map(|n| refused(&format!("{n}.com"), 8080, 1)).collect();
        let line = refused_line(&many, &network).unwrap();
        assert!(line.contains(", and to 4 more hosts; to allow them, use --network"), "{line}");
        assert!(line.contains("0.com:8080") && !line.contains("5.com"), "{line}");
    }
}
