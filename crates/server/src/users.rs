//! Users of a sandbox, as its own files `/etc/passwd` and `/etc/group` list them.

use std::collections::HashMap;

use sandbox::Identity;

/// A user of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) home: String,
    pub(crate) identity: Identity,
}

/// Users and groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Users {
    by_name: HashMap<String, User>,
    /// The first name of each number.
    names: HashMap<u32, String>,
    groups: HashMap<u32, String>,
}

/// Most users and groups that are considered.
const MOST: usize = 4096;
/// Most groups of a user.
const MOST_GROUPS: usize = 64;

impl Users {
    /// Parses the two files. Lines that are malformed are skipped, as the C library does.
    pub(crate) fn parse(passwd: &str, group: &str) -> Self {
        let mut groups = HashMap::new();
        let mut memberships: HashMap<&str, Vec<u32>> = HashMap::new();
        for line in group.lines().take(MOST) {
            let mut fields = line.split(':');
            let (Some(name), Some(gid), Some(members)) =
                (fields.next(), fields.nth(1).and_then(|gid| gid.parse().ok()), fields.next())
            else {
                continue;
            };
            groups.entry(gid).or_insert_with(|| name.to_owned());
            for member in members.split(',').filter(|name| !name.is_empty()) {
                let of_user = memberships.entry(member).or_default();
                if of_user.len() < MOST_GROUPS {
                    of_user.push(gid);
                }
            }
        }
        let users = passwd.lines().take(MOST).filter_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next().filter(|name| !name.is_empty())?.to_owned();
            let uid = fields.nth(1)?.parse().ok()?;
            let gid = fields.next()?.parse().ok()?;
            let home = fields.nth(1).filter(|home| home.starts_with('/')).unwrap_or("/").to_owned();
            let of_user = memberships.get(name.as_str()).into_iter().flatten();
            let more = of_user.copied().filter(|more| *more != gid);
            let groups = std::iter::once(gid).chain(more).take(MOST_GROUPS).collect();
            Some(User { name, home, identity: Identity { uid, gid, groups } })
        });
        let (mut by_name, mut names) = (HashMap::new(), HashMap::new());
        for user in users {
            names.entry(user.identity.uid).or_insert_with(|| user.name.clone());
            by_name.entry(user.name.clone()).or_insert(user);
        }
        Self { by_name, names, groups }
    }

    /// The user of this name.
    pub(crate) fn named(&self, name: &str) -> Option<&User> {
        self.by_name.get(name)
    }

    /// The name of a user, or the number.
    pub(crate) fn user_name(&self, uid: u32) -> String {
        self.names.get(&uid).cloned().unwrap_or_else(|| uid.to_string())
    }

    /// The name of a group, or the number.
    pub(crate) fn group_name(&self, gid: u32) -> String {
        self.groups.get(&gid).cloned().unwrap_or_else(|| gid.to_string())
    }
}

impl User {
    /// Root, where the sandbox lists no users.
    pub(crate) fn root() -> Self {
        Self { name: "root".into(), home: "/root".into(), identity: Identity::default() }
    }

    /// An absolute path: relative ones start at the home directory, and so does `~`.
    pub(crate) fn resolve(&self, path: &str) -> std::path::PathBuf {
        let home = std::path::Path::new(&self.home);
        let joined = match path.strip_prefix('~') {
            Some("") => home.to_owned(),
            Some(rest) if rest.starts_with('/') => home.join(rest.trim_start_matches('/')),
            _ => home.join(path),
        };
        // As the original does: `..` takes back the name before it, whatever that leads to.
        let mut clean = std::path::PathBuf::from("/");
        for part in joined.components() {
            match part {
                std::path::Component::Normal(name) => clean.push(name),
                std::path::Component::ParentDir => {
                    clean.pop();
                }
                _ => {}
            }
        }
        clean
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000::/home/user:/bin/bash\n\
        broken\n:x:1:1::/:\nodd:x:abc:1::/:\nlow:x:7:8:::\n";
    const GROUP: &str = "root:x:0:\nsudo:x:27:user,low\nuser:x:1000:\nbad\n";

    #[test]
    fn users_have_their_groups_and_homes() {
        let users = Users::parse(PASSWD, GROUP);
        let user = users.named("user").unwrap();
        assert_eq!(user.identity, Identity { uid: 1000, gid: 1000, groups: vec![1000, 27] });
        assert_eq!(user.home, "/home/user");
        assert_eq!(users.named("low").unwrap().home, "/");
        assert_eq!(
            (users.named("odd"), users.named(""), users.named("broken")),
            (None, None, None)
        );
        assert_eq!((users.user_name(1000).as_str(), users.user_name(5).as_str()), ("user", "5"));
        assert_eq!((users.group_name(27).as_str(), users.group_name(5).as_str()), ("sudo", "5"));
    }

    #[test]
    fn relative_paths_start_at_home() {
        let users = Users::parse(PASSWD, GROUP);
        let path = |path: &str| users.named("user").unwrap().resolve(path).display().to_string();
        assert_eq!(path("a/b"), "/home/user/a/b");
        assert_eq!(path("/etc"), "/etc");
        assert_eq!((path("~").as_str(), path("~/x").as_str()), ("/home/user", "/home/user/x"));
        assert_eq!(path("~x"), "/home/user/~x");
        assert_eq!(
            (path("./a/../b/.").as_str(), path("../../../x").as_str()),
            ("/home/user/b", "/x")
        );
    }
}
