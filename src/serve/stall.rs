//! Ends a connection whose peer takes nothing of what is sent to it.
//!
//! hyper reads no further request before the answer is out, so neither of its timeouts would ever end such a connection.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep},
};

/// A stream whose writes fail when they make no progress for some time.
pub(super) struct WriteDeadline<S> {
    stream: S,
    patience: Duration,
    /// Set while a write waits.
    waiting: bool,
    timer: Pin<Box<Sleep>>,
}

impl<S> WriteDeadline<S> {
    pub(super) fn new(stream: S, patience: Duration) -> Self {
        Self {
            stream,
            patience,
            waiting: false,
            timer: Box::pin(tokio::time::sleep(patience)),
        }
    }

    fn watch<T>(&mut self, cx: &mut Context<'_>, progress: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if progress.is_ready() {
            self.waiting = false;
            return progress;
        }
        if !self.waiting {
            self.waiting = true;
            let until = Instant::now() + self.patience;
            self.timer.as_mut().reset(until);
        }
        ready!(self.timer.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the peer does not read the answer",
        )))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteDeadline<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteDeadline<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let progress = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.watch(cx, progress)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let progress = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.watch(cx, progress)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let progress = Pin::new(&mut self.stream).poll_flush(cx);
        self.watch(cx, progress)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let progress = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.watch(cx, progress)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_reads_nothing_ends_the_write() {
        let (ours, _theirs) = tokio::io::duplex(16);
        let mut stream = WriteDeadline::new(ours, Duration::from_secs(10));
        let begun = Instant::now();
        let error = stream.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed().as_secs(), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_peer_that_does_read_does_not() {
        let (ours, mut theirs) = tokio::io::duplex(16);
        let mut stream = WriteDeadline::new(ours, Duration::from_secs(10));
        let reading = tokio::spawn(async move {
            let mut buffer = [0; 16];
            for _ in 0..4 {
                tokio::time::sleep(Duration::from_secs(9)).await;
                theirs.read_exact(&mut buffer).await.unwrap();
            }
        });
        stream.write_all(&[0; 64]).await.unwrap();
        reading.await.unwrap();
    }
}
