//! The caller's end of a pipe to a file worker: bounded, and it never blocks a thread whose request was cancelled.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::fd::OwnedFd,
    sync::mpsc,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use sandbox::{LOOK_INTERVAL, Progress};

/// One end of a pipe. Every piece is a step of the request; waiting for the other side ends when the request is cancelled.
pub(crate) struct Transfer {
    pipe: File,
    progress: Progress,
}

impl Transfer {
    pub(crate) fn new(pipe: OwnedFd, progress: &Progress) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&pipe, true)?;
        // The other side is waited for in `retry` alone.
        progress.set_busy(true);
        Ok(Self { pipe: pipe.into(), progress: progress.clone() })
    }

    /// Repeats an operation that does not wait, until it could do something or the request is cancelled.
    fn retry(
        &mut self,
        events: PollFlags,
        mut operation: impl FnMut(&mut File) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let look = Timespec { tv_sec: 0, tv_nsec: LOOK_INTERVAL.as_nanos() as i64 };
        loop {
            match operation(&mut self.pipe) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return self.progress.step().and(done),
            }
            self.progress.set_busy(false);
            match poll(&mut [PollFd::new(&self.pipe, events)], Some(&look)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            self.progress.set_busy(true);
            if self.progress.is_cancelled() {
                return Err(io::Error::other(sandbox::Cancelled));
            }
        }
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.progress.set_busy(false);
    }
}

impl Read for Transfer {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.retry(PollFlags::IN, |pipe| pipe.read(buffer))
    }
}

impl Write for Transfer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.retry(PollFlags::OUT, |pipe| pipe.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A stream that ends only once its writer is known to have finished. A stream that was cut off fails instead, and so
/// does one that is longer than allowed.
pub(crate) struct CompleteStream {
    stream: io::BufReader<Transfer>,
    verdict: mpsc::Receiver<()>,
    left: u64,
}

/// Reports to a [`CompleteStream`] that its writer has finished. Dropped without a report, the stream fails.
pub(crate) struct Verdict(mpsc::Sender<()>);

impl CompleteStream {
    /// A stream of at most this many bytes.
    pub(crate) fn new(stream: Transfer, most: u64) -> (Self, Verdict) {
        let (confirm, verdict) = mpsc::channel();
        let stream = io::BufReader::with_capacity(1 << 16, stream);
        (Self { stream, verdict, left: most }, Verdict(confirm))
    }
}

impl Verdict {
    /// The writer has written everything.
    pub(crate) fn complete(&self) {
        // A reader asks once for every end of file it sees, which may be more than once.
        for _ in 0..8 {
            let _ = self.0.send(());
        }
    }
}

impl Read for CompleteStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.stream.read(buffer)? {
            0 if !buffer.is_empty() => {
                // For the writer's report, not for this side.
                self.stream.get_ref().progress.set_busy(false);
                let verdict = self.verdict.recv();
                self.stream.get_ref().progress.set_busy(true);
                match verdict {
                    Ok(()) => Ok(0),
                    Err(_) => {
                        Err(io::Error::other("the sandbox ended before the stream was complete"))
                    }
                }
            }
            n => {
                self.left = self.left.checked_sub(n as u64).ok_or_else(|| {
                    io::Error::other("the files are larger than the sandbox's disk limit allows")
                })?;
                Ok(n)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        thread,
        time::{Duration, Instant},
    };

    use super::*;

    fn ends(run: impl FnOnce(Transfer, OwnedFd) -> io::Result<()> + Send + 'static, reads: bool) {
        let (reading, writing) = rustix::pipe::pipe().unwrap();
        let (ours, theirs) = if reads { (reading, writing) } else { (writing, reading) };
        let progress = Progress::default();
        let transfer = Transfer::new(ours, &progress).unwrap();
        let thread = thread::spawn(move || run(transfer, theirs));
        thread::sleep(Duration::from_millis(100));
        assert!(!thread.is_finished(), "it should wait for the other side");
        let begun = Instant::now();
        progress.cancel();
        let ended = thread.join().unwrap().unwrap_err();
        assert!(ended.to_string().contains("cancelled"), "{ended}");
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    }

    #[test]
    fn a_blocked_thread_ends_when_its_request_is_cancelled() {
        ends(|mut transfer, _theirs| transfer.read_exact(&mut [0; 9]), true);
        ends(|mut transfer, _theirs| transfer.write_all(&vec![0; 1 << 22]), false);
    }

    #[test]
    fn a_stream_without_a_verdict_is_cut_off() {
        let read = |confirmed: bool| {
            let (reading, writing) = rustix::pipe::pipe().unwrap();
            File::from(writing).write_all(b"abc").unwrap();
            let transfer = Transfer::new(reading, &Progress::default()).unwrap();
            let (mut stream, verdict) = CompleteStream::new(transfer, 100);
            if confirmed {
                verdict.complete();
            }
            drop(verdict);
            io::read_to_string(&mut stream)
        };
        assert_eq!(read(true).unwrap(), "abc");
        assert!(read(false).unwrap_err().to_string().contains("before the stream was complete"));
    }
}
