//! A person at a terminal in a sandbox, played through a pseudo-terminal; and scripts on standard input.

use std::{
    fs::File,
    io::{Read, Write},
    os::fd::OwnedFd,
    process::Stdio,
    sync::{Arc, Mutex},
};

use rustix::{
    process::Signal,
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize},
};

use crate::support::{Home, Running, code, err, out, wait_for};

/// The program at a terminal, and what it showed so far.
struct Person {
    running: Running,
    terminal: File,
    programs_side: OwnedFd,
    shown: Arc<Mutex<Vec<u8>>>,
}

impl Person {
    fn at_a_terminal(home: &Home, args: &[&str]) -> Self {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let name = ptsname(&terminal, Vec::new()).unwrap();
        let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY;
        let side = rustix::fs::open(name.as_c_str(), flags, rustix::fs::Mode::empty()).unwrap();
        set_size(&terminal, 31, 97);
        let end = || Stdio::from(side.try_clone().unwrap());
        let mut command = home.command(args);
        command.env("TERM", "vt220").stdin(end()).stdout(end()).stderr(end());
        let running = Running(command.spawn().unwrap());
        let shown = Arc::new(Mutex::new(Vec::new()));
        let mut reader = File::from(terminal.try_clone().unwrap());
        let into = Arc::clone(&shown);
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = reader.read(&mut buffer) {
                into.lock().unwrap().extend_from_slice(&buffer[..n]);
            }
        });
        Self { running, terminal: File::from(terminal), programs_side: side, shown }
    }

    fn types(&mut self, keys: &str) {
        self.terminal.write_all(keys.as_bytes()).unwrap();
    }

    fn sees(&self, text: &str) {
        wait_for(&format!("{text:?} on the terminal"), || {
            String::from_utf8_lossy(&self.shown.lock().unwrap()).contains(text).then_some(())
        });
    }

    /// Ctrl-C belongs to whatever runs inside: it ends the command, not the shell.
    fn interrupts_a_command(&mut self) {
        // The command itself says that it runs. The line's echo comes earlier, while the shell
        // still is in front, which ignores the key.
        self.types("sh -c 'echo sleeps $((40+2)); exec sleep 1000'\r");
        self.sees("sleeps 42");
        self.types("\x03");
    }

    fn echo_is_on(&self) -> bool {
        tcgetattr(&self.programs_side).unwrap().local_modes.contains(LocalModes::ECHO)
    }
}

fn set_size(terminal: &OwnedFd, rows: u16, cols: u16) {
    let size = Winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).unwrap();
}

#[test]
fn a_person_types_and_leaves() {
    let Some(home) = Home::with_sandboxes() else { return };
    let mut person = Person::at_a_terminal(&home, &["sandbox", "shell"]);
    person.sees("# ");
    assert!(!person.echo_is_on());
    person.types("echo size $(stty size) on $TERM at $(hostname)\r");
    person.sees("size 31 97 on vt220 at sandbox\r\n");
    let terminal: OwnedFd = person.terminal.try_clone().unwrap().into();
    set_size(&terminal, 55, 111);
    // The test has no session of its own, so nobody but us tells the program.
    person.running.signal(Signal::WINCH);
    wait_for("the new size", || {
        person.types("echo now $(stty size)\r");
        std::thread::sleep(std::time::Duration::from_millis(50));
        String::from_utf8_lossy(&person.shown.lock().unwrap()).contains("now 55 111").then_some(())
    });
    person.interrupts_a_command();
    person.types("echo still $((1+1)) here\r");
    person.sees("still 2 here");
    // Every movement of the mouse would be typed into the user's own shell.
    person.types("printf '\\033[?1003h'; exit 7\r");
    assert_eq!(person.running.end(), 7);
    assert!(person.echo_is_on());
    person.sees("\x1b[?1003l");
    assert!(home.traces().is_empty());
}

#[test]
fn the_terminal_is_restored_when_the_program_is_ended() {
    let Some(home) = Home::with_sandboxes() else { return };
    let mut person = Person::at_a_terminal(&home, &["sandbox", "shell"]);
    person.sees("# ");
    assert!(!person.echo_is_on());
    person.running.signal(Signal::TERM);
    assert_eq!(person.running.end(), 143);
    assert!(person.echo_is_on());
    assert!(home.traces().is_empty());
}

#[test]
fn the_terminal_is_restored_after_an_error() {
    let home = Home::new();
    let mut person = Person::at_a_terminal(&home, &["sandbox", "shell", "--image", "nope"]);
    let code = person.running.end();
    assert!(code == 2 || code == 4, "{code}");
    assert!(person.echo_is_on());
    person.sees("llm-in-sandbox: error: ");
}

#[test]
fn a_script_on_standard_input_is_run() {
    let Some(home) = Home::with_sandboxes() else { return };
    let mut command = home.command(["sandbox", "shell"]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"cd /tmp\npwd\nexit 5\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((code(&output), out(&output).as_str()), (5, "/tmp\n"), "{}", err(&output));
}

#[test]
fn a_command_in_a_named_sandbox_gets_a_terminal() {
    let Some(home) = Home::with_sandboxes() else { return };
    home.ok(["sandbox", "create", "box"]);
    let mut person =
        Person::at_a_terminal(&home, &["sandbox", "exec", "box", "--tty", "--", "bash"]);
    person.sees("# ");
    person.types("echo size $(stty size) on $TERM\r");
    person.sees("size 31 97 on vt220\r\n");
    let terminal: OwnedFd = person.terminal.try_clone().unwrap().into();
    set_size(&terminal, 55, 111);
    person.running.signal(Signal::WINCH);
    wait_for("the new size", || {
        person.types("echo now $(stty size)\r");
        std::thread::sleep(std::time::Duration::from_millis(50));
        String::from_utf8_lossy(&person.shown.lock().unwrap()).contains("now 55 111").then_some(())
    });
    person.interrupts_a_command();
    person.types("exit 7\r");
    assert_eq!(person.running.end(), 7);
    assert!(person.echo_is_on());
    home.ok(["sandbox", "rm", "box"]);
}
