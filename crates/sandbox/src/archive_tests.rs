//! Tests of the module of the same name: what it must do, and what it must refuse.

use proptest::prelude::*;

use std::fs;

use super::*;
use crate::CopyReport;

fn pack(source: &Path, name: &Path, out: &mut Vec<u8>) -> io::Result<CopyReport> {
    super::pack(source, name, out, &|| Ok(()))
}

fn unpack(stream: &[u8], dest: &Path) -> io::Result<CopyReport> {
    super::unpack(u64::MAX, stream, dest, &|| Ok(()))
}

fn link(builder: &mut tar::Builder<Vec<u8>>, name: &str, target: &str, kind: tar::EntryType) {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(0);
    builder.append_link(&mut header, name, target).unwrap();
}

fn raw(builder: &mut tar::Builder<Vec<u8>>, name: &[u8], kind: tar::EntryType, data: &[u8]) {
    let mut header = tar::Header::new_gnu();
    header.as_old_mut().name[..name.len()].copy_from_slice(name);
    header.set_entry_type(kind);
    header.set_mode(0o4755);
    header.set_size(data.len() as u64);
    header.set_cksum();
    builder.append(&header, data).unwrap();
}

#[test]
fn a_tree_survives_the_round_trip() {
    let from = tempfile::tempdir().unwrap();
    fs::create_dir_all(from.path().join("a/b")).unwrap();
    let bytes: Vec<u8> = (0..100_000u32).map(|i| (i * 7) as u8).collect();
    fs::write(from.path().join("a/b/data"), &bytes).unwrap();
    fs::write(from.path().join("empty"), b"").unwrap();
    std::os::unix::fs::symlink("b/data", from.path().join("a/l")).unwrap();
    let mut stream = Vec::new();
    let packed = pack(from.path(), Path::new("/x/top"), &mut stream).unwrap();
    assert_eq!((packed.files, packed.bytes), (2, 100_000));

    let to = tempfile::tempdir().unwrap();
    // `unpack` replaces one component; what was packed as x/top arrives as top.
    let report = unpack(stream.as_slice(), &to.path().join("got")).unwrap_err();
    assert!(report.to_string().contains("does not start"), "{report}");
    let mut stream = Vec::new();
    pack(from.path(), Path::new("top"), &mut stream).unwrap();
    let report = unpack(stream.as_slice(), &to.path().join("got")).unwrap();
    assert_eq!(report.skipped, vec![]);
    assert_eq!(fs::read(to.path().join("got/a/l")).unwrap(), bytes);
    assert_eq!(fs::read(to.path().join("got/empty")).unwrap(), b"");
}

#[test]
fn nothing_in_a_stream_leads_outside() {
    let outside = tempfile::tempdir().unwrap();
    let secret = outside.path().join("secret");
    fs::write(&secret, "untouched").unwrap();
    let out = outside.path().to_str().unwrap();

    let mut b = tar::Builder::new(Vec::new());
    raw(&mut b, b"t", tar::EntryType::Directory, b"");
    raw(&mut b, b"t/../../evil", tar::EntryType::Regular, b"x");
    raw(&mut b, b"/t/abs", tar::EntryType::Regular, b"fine");
    link(&mut b, "t/out", out, tar::EntryType::Symlink);
    raw(&mut b, b"t/out/evil", tar::EntryType::Regular, b"x");
    link(&mut b, "t/up", "..", tar::EntryType::Symlink);
    link(&mut b, "t/hard", secret.to_str().unwrap(), tar::EntryType::Link);
    raw(&mut b, b"t/d", tar::EntryType::Directory, b"");
    raw(&mut b, b"t/d/e", tar::EntryType::Directory, b"");
    link(&mut b, "t/d/e/root", "../..", tar::EntryType::Symlink);
    link(&mut b, "t/trick", "d/e/root/../x", tar::EntryType::Symlink);
    raw(&mut b, b"t/d/e/root/f", tar::EntryType::Regular, b"x");
    raw(&mut b, b"t/dev", tar::EntryType::Char, b"");
    raw(&mut b, b"t/fifo", tar::EntryType::Fifo, b"");
    raw(&mut b, b"t/suid", tar::EntryType::Regular, b"ok");
    let stream = b.into_inner().unwrap();

    let to = tempfile::tempdir().unwrap();
    let dest = to.path().join("dest");
    let report = unpack(stream.as_slice(), &dest).unwrap();
    let mut skipped: Vec<_> =
        report.skipped.iter().map(|s| s.path.to_string_lossy().into_owned()).collect();
    skipped.sort();
    assert_eq!(
        skipped,
        ["d/e/root/f", "dev", "fifo", "hard", "out", "t/../../evil", "trick", "up"]
    );
    assert_eq!(fs::read_to_string(&secret).unwrap(), "untouched");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    assert_eq!(fs::read_dir(to.path()).unwrap().count(), 1);
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(fs::metadata(dest.join("suid")).unwrap().permissions().mode() & 0o7000, 0);
}

#[test]
fn an_existing_link_at_the_destination_is_replaced_not_followed() {
    let to = tempfile::tempdir().unwrap();
    let victim = to.path().join("victim");
    fs::write(&victim, "untouched").unwrap();
    fs::create_dir(to.path().join("dest")).unwrap();
    std::os::unix::fs::symlink(&victim, to.path().join("dest/f")).unwrap();
    let mut b = tar::Builder::new(Vec::new());
    raw(&mut b, b"t", tar::EntryType::Directory, b"");
    raw(&mut b, b"t/f", tar::EntryType::Regular, b"new");
    unpack(b.into_inner().unwrap().as_slice(), &to.path().join("dest")).unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "untouched");
    assert_eq!(fs::read_to_string(to.path().join("dest/f")).unwrap(), "new");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn arbitrary_bytes_never_panic_or_escape(data in prop::collection::vec(any::<u8>(), 0..4096)) {
        let to = tempfile::tempdir().unwrap();
        let _ = unpack(data.as_slice(), &to.path().join("dest"));
        prop_assert!(fs::read_dir(to.path()).unwrap().count() <= 1);
    }

    #[test]
    fn arbitrary_names_and_links_stay_inside(
        entries in prop::collection::vec(("[a-c./]{1,12}", "[a-c./]{1,12}", 0u8..4), 0..30)
    ) {
        let to = tempfile::tempdir().unwrap();
        let mut b = tar::Builder::new(Vec::new());
        raw(&mut b, b"t", tar::EntryType::Directory, b"");
        for (name, target, kind) in &entries {
            let kind = [
                tar::EntryType::Regular, tar::EntryType::Directory,
                tar::EntryType::Symlink, tar::EntryType::Link,
            ][*kind as usize];
            let mut header = tar::Header::new_gnu();
            let name = format!("t/{name}");
            header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
            header.as_old_mut().linkname[..target.len()].copy_from_slice(target.as_bytes());
            header.set_entry_type(kind);
            header.set_mode(0o644);
            header.set_size(0);
            header.set_cksum();
            b.append(&header, io::empty()).unwrap();
        }
        let dest = to.path().join("dest");
        let _ = unpack(b.into_inner().unwrap().as_slice(), &dest);
        prop_assert!(fs::read_dir(to.path()).unwrap().count() <= 1);
        // Whatever link was made, following it ends inside.
        // A stream that contradicts itself leaves nothing at all.
        let Ok(real) = fs::canonicalize(&dest) else { return Ok(()) };
        let mut left = vec![dest];
        while let Some(dir) = left.pop() {
            for entry in fs::read_dir(dir).unwrap() {
                let entry = entry.unwrap();
                if entry.file_type().unwrap().is_dir() { left.push(entry.path()); }
                else if let Ok(end) = fs::canonicalize(entry.path()) {
                    prop_assert!(end.starts_with(&real), "{:?} -> {:?}", entry.path(), end);
                }
            }
        }
    }
}

#[test]
fn a_stream_that_breaks_off_leaves_nothing() {
    let mut b = tar::Builder::new(Vec::new());
    raw(&mut b, b"t", tar::EntryType::Directory, b"");
    raw(&mut b, b"t/a", tar::EntryType::Regular, &[7; 5000]);
    raw(&mut b, b"t/b", tar::EntryType::Regular, &[7; 5000]);
    let stream = b.into_inner().unwrap();
    let to = tempfile::tempdir().unwrap();
    unpack(&stream[..stream.len() - 6000], &to.path().join("dest")).unwrap_err();
    super::unpack(6000, stream.as_slice(), &to.path().join("dest"), &|| Ok(())).unwrap_err();
    assert_eq!(fs::read_dir(to.path()).unwrap().count(), 0);
    unpack(stream.as_slice(), &to.path().join("dest")).unwrap();
    assert_eq!(fs::read_dir(to.path().join("dest")).unwrap().count(), 2);
}

/// Entries without content take space as well: on the host each has a name and an inode, and a long target a block.
#[test]
fn entries_without_content_reach_the_limit() {
    use tar::EntryType::{Directory, Regular, Symlink};
    let most = 1 << 20;
    let long = "x".repeat(90);
    type Add = fn(&mut tar::Builder<Vec<u8>>, &str, &str);
    // What is added, and how many of them take more than the limit.
    let kinds: [(Add, u64); 6] = [
        (|b, name, _| raw(b, name.as_bytes(), Regular, b""), most / 256),
        (|b, name, _| raw(b, name.as_bytes(), Regular, b"x"), most / 4352),
        (|b, name, long| link(b, name, long, Symlink), most / 4352),
        (|b, name, _| raw(b, name.as_bytes(), Directory, b""), most / 4352),
        // Directories that have no entry of their own, and entries that are not unpacked.
        (
            |b, name, _| raw(b, format!("{name}/d/f").as_bytes(), Regular, b""),
            most / (2 * 4352 + 256),
        ),
        (|b, name, _| raw(b, name.as_bytes(), tar::EntryType::Fifo, b""), most / 256),
    ];
    for (kind, (add, enough)) in kinds.into_iter().enumerate() {
        for (count, fits) in [(enough / 2, true), (enough, false)] {
            let mut b = tar::Builder::new(Vec::new());
            raw(&mut b, b"t", Directory, b"");
            (0..count).for_each(|i| add(&mut b, &format!("t/{i}"), &long));
            let stream = b.into_inner().unwrap();
            let to = tempfile::tempdir().unwrap();
            let dest = to.path().join("dest");
            let unpacked = super::unpack(most, stream.as_slice(), &dest, &|| Ok(()));
            assert_eq!(unpacked.is_ok(), fits, "{kind}: {count}: {unpacked:?}");
            assert_eq!(dest.exists(), fits, "{kind}: {count}");
        }
    }
}

#[test]
fn an_empty_stream_creates_no_directories() {
    let to = tempfile::tempdir().unwrap();
    let nothing = tar::Builder::new(Vec::new()).into_inner().unwrap();
    for stream in [nothing.as_slice(), &[]] {
        unpack(stream, &to.path().join("new/dir/file")).unwrap();
        assert_eq!(std::fs::read_dir(to.path()).unwrap().count(), 0);
    }
}

/// A stream that is a header and then zeros without end.
fn endless(header: &tar::Header) -> impl io::Read + use<> {
    io::Read::chain(io::Cursor::new(header.as_bytes().to_vec()), io::repeat(b'x'))
}

fn header(kind: tar::EntryType, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.as_old_mut().name[0] = b't';
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_size(size);
    header.set_cksum();
    header
}

#[test]
fn names_without_end_are_refused() {
    let to = tempfile::tempdir().unwrap();
    let kinds = [tar::EntryType::GNULongName, tar::EntryType::GNULongLink, tar::EntryType::XHeader];
    for kind in kinds {
        let stream = endless(&header(kind, 1 << 40));
        let refused =
            super::unpack(u64::MAX, stream, &to.path().join("x"), &|| Ok(())).unwrap_err();
        assert!(refused.to_string().contains("headers of an entry"), "{kind:?}: {refused}");
    }
    assert_eq!(fs::read_dir(to.path()).unwrap().count(), 0);
}

#[test]
fn a_cancelled_copy_leaves_nothing() {
    let to = tempfile::tempdir().unwrap();
    for dest in [to.path().join("new"), to.path().to_owned()] {
        let mut b = tar::Builder::new(Vec::new());
        raw(&mut b, b"t", tar::EntryType::Directory, b"");
        let mut start = b.into_inner().unwrap();
        start.truncate(512);
        let mut file = header(tar::EntryType::Regular, 1 << 40);
        file.as_old_mut().name[..6].copy_from_slice(b"t/file");
        file.set_cksum();
        let stream = io::Read::chain(io::Cursor::new(start), endless(&file));
        let steps = std::cell::Cell::new(0);
        let on_step = || {
            steps.set(steps.get() + 1);
            if steps.get() > 20 { Err(io::Error::other(crate::Cancelled)) } else { Ok(()) }
        };
        let ended = super::unpack(u64::MAX, stream, &dest, &on_step).unwrap_err();
        assert!(ended.to_string().contains("cancelled"), "{ended}");
        assert_eq!(fs::read_dir(to.path()).unwrap().count(), 0, "{dest:?}");
    }
}

/// The size of a sparse file is a number in its header: no byte has to arrive while it is written.
#[test]
fn a_hole_without_end_can_be_cancelled() {
    let to = tempfile::tempdir().unwrap();
    let mut header = header(tar::EntryType::GNUSparse, 0);
    let gnu = header.as_gnu_mut().unwrap();
    gnu.realsize[0] = 0x80;
    gnu.realsize[4..].copy_from_slice(&(1u64 << 62).to_be_bytes());
    gnu.sparse[0].offset[0] = 0x80;
    gnu.sparse[0].offset[4..].copy_from_slice(&(1u64 << 62).to_be_bytes());
    gnu.sparse[0].numbytes = *b"00000000000\0";
    header.set_cksum();
    let steps = std::cell::Cell::new(0);
    let on_step = || {
        steps.set(steps.get() + 1);
        if steps.get() > 20 { Err(io::Error::other(crate::Cancelled)) } else { Ok(()) }
    };
    let stream = io::Cursor::new(header.as_bytes().to_vec());
    let ended = super::unpack(u64::MAX, stream, &to.path().join("x"), &on_step).unwrap_err();
    assert!(ended.to_string().contains("cancelled"), "{ended}");
    assert_eq!(fs::read_dir(to.path()).unwrap().count(), 0);
    let refused = super::unpack(1 << 30, endless(&header), &to.path().join("x"), &|| Ok(()));
    assert!(refused.unwrap_err().to_string().contains("more than 1073741824 bytes"));
}

/// What changes, or is too deep to be copied, is left out; the rest is copied.
#[test]
fn a_hostile_tree_is_packed_without_what_cannot_be() {
    let from = tempfile::tempdir().unwrap();
    let deep = from.path().join("d/".repeat(MAX_DEPTH + 40));
    fs::create_dir_all(&deep).unwrap();
    fs::write(from.path().join("kept"), "x").unwrap();
    fs::write(from.path().join("vanishing"), "x").unwrap();
    let vanishing = from.path().join("vanishing");
    let steps = std::cell::Cell::new(0);
    let on_step = || {
        // Once the directory was listed.
        steps.set(steps.get() + 1);
        if steps.get() > 5 {
            let _ = fs::remove_file(&vanishing);
        }
        Ok(())
    };
    let mut stream = Vec::new();
    let top = Path::new("copied");
    let report = pack_sandbox(&[], from.path(), top, &mut stream, &on_step).unwrap();
    assert_eq!(report.files, 1);
    let why: Vec<_> = report.skipped.iter().map(|entry| entry.why.as_str()).collect();
    assert!(why.contains(&TOO_DEEP) && why.contains(&"it changed meanwhile"), "{why:?}");
    let to = tempfile::tempdir().unwrap();
    let got = unpack(&stream, &to.path().join("got")).unwrap();
    assert_eq!((got.files, got.skipped_count()), (1, 0));
    assert!(to.path().join("got").join("d/".repeat(MAX_DEPTH)).is_dir());
}

/// What takes the place of a file after it was looked at is left out; the rest is copied.
#[test]
fn a_file_that_becomes_a_pipe_or_socket_is_left_out() {
    let pipe = |path: &Path| {
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, path, mode).unwrap();
    };
    let socket = |path: &Path| drop(std::os::unix::net::UnixListener::bind(path).unwrap());
    let kinds: [&dyn Fn(&Path); 2] = [&pipe, &socket];
    for replace in kinds {
        let from = tempfile::tempdir().unwrap();
        for name in ["changing", "kept"] {
            fs::write(from.path().join(name), "x").unwrap();
        }
        let steps = std::cell::Cell::new(0);
        let on_step = || {
            steps.set(steps.get() + 1);
            // The directory, its two names, and then the first entry, whose kind is known by now.
            if steps.get() == 4 {
                let changing = from.path().join("changing");
                fs::remove_file(&changing).unwrap();
                replace(&changing);
            }
            Ok(())
        };
        let mut stream = Vec::new();
        let report =
            pack_sandbox(&[], from.path(), Path::new("copied"), &mut stream, &on_step).unwrap();
        assert_eq!((report.files, report.skipped.len()), (1, 1), "{report:?}");
        assert_eq!(report.skipped[0].why, "it changed meanwhile");
        let to = tempfile::tempdir().unwrap();
        unpack(&stream, &to.path().join("got")).unwrap();
        assert_eq!(fs::read_to_string(to.path().join("got/kept")).unwrap(), "x");
    }
}

/// A log that is emptied while it is copied does not keep the rest from being copied, and the report names it.
#[test]
fn a_file_that_shrinks_is_filled_and_reported() {
    let from = tempfile::tempdir().unwrap();
    let log = from.path().join("log");
    fs::write(&log, vec![b'x'; 1 << 20]).unwrap();
    fs::write(from.path().join("result"), "42").unwrap();
    let empty_it = || {
        if fs::metadata(&log)?.len() > 0
            && STEPS.fetch_add(1, std::sync::atomic::Ordering::Relaxed) > 6
        {
            fs::File::create(&log)?;
        }
        Ok(())
    };
    static STEPS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let mut stream = Vec::new();
    let report =
        pack_sandbox(&[], from.path(), Path::new("copied"), &mut stream, &empty_it).unwrap();
    assert_eq!((report.files, report.skipped.len()), (2, 1), "{report:?}");
    assert!(report.skipped[0].why.contains("shrank"), "{report:?}");
    let to = tempfile::tempdir().unwrap();
    let got = to.path().join("got");
    unpack(&stream, &got).unwrap();
    assert_eq!(fs::read_to_string(got.join("result")).unwrap(), "42");
    let log = fs::read(got.join("log")).unwrap();
    assert_eq!((log.len(), log[0], log[log.len() - 1]), (1 << 20, b'x', 0));
    // A file of the caller that shrinks is the caller's business.
    fs::write(from.path().join("log"), vec![b'x'; 1 << 20]).unwrap();
    STEPS.store(0, std::sync::atomic::Ordering::Relaxed);
    let own = super::pack(from.path(), Path::new("x"), &mut Vec::new(), &|| {
        let log = from.path().join("log");
        if STEPS.fetch_add(1, std::sync::atomic::Ordering::Relaxed) > 6 {
            fs::File::create(log).map(drop)
        } else {
            Ok(())
        }
    });
    assert_eq!(own.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}
