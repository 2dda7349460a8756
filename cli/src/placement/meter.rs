//! The progress of a long command on standard error: a bar on a terminal, a line for each part
//! elsewhere, and nothing where programs read the output.

use std::future::Future;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::output::{self, seconds};

/// The minimum time between two drawings of a bar.
const REDRAWN: Duration = Duration::from_millis(100);
/// The width of a bar, in characters.
const WIDTH: usize = 30;

/// Which kinds of progress are printed.
#[derive(Clone, Copy, Debug)]
pub struct Meter {
    bars: bool,
    lines: bool,
}

/// The progress of one part of a command.
pub struct Part {
    meter: Meter,
    what: String,
    total: usize,
    done: usize,
    began: Instant,
    drawn: Option<Instant>,
    ended: bool,
}

impl Meter {
    /// Returns a meter for the reader of standard error.
    #[must_use]
    pub fn new(programs: bool) -> Self {
        Self {
            bars: !programs && output::can_redraw(),
            lines: !programs,
        }
    }

    /// Prints a message.
    pub fn message(self, text: &str) {
        if self.lines {
            output::message(text);
        }
    }

    /// Begins a part of so many steps.
    #[must_use]
    pub fn part(self, what: &str, total: usize) -> Part {
        let mut part = Part {
            meter: self,
            what: what.to_owned(),
            total,
            done: 0,
            began: Instant::now(),
            drawn: None,
            ended: false,
        };
        part.draw();
        part
    }
}

impl Part {
    /// Counts completed steps.
    pub fn step(&mut self, count: usize) {
        self.done += count;
        if self.drawn.is_none_or(|drawn| drawn.elapsed() >= REDRAWN) {
            self.draw();
        }
    }

    /// Prints the outcome.
    pub fn end(mut self) {
        self.ended = true;
        if self.meter.bars {
            // The bar goes, the line stays.
            output::redraw("");
        }
        let time = seconds(self.began.elapsed());
        self.meter
            .message(&format!("  {:<28} {:>8}  {time:>8}", self.what, self.done));
    }

    fn draw(&mut self) {
        self.drawn = Some(Instant::now());
        if !self.meter.bars {
            return;
        }
        let filled = WIDTH * self.done.min(self.total) / self.total.max(1);
        let bar = format!("{}{}", "#".repeat(filled), ".".repeat(WIDTH - filled));
        output::redraw(&format!(
            "  {:<28} [{bar}] {}/{}",
            self.what, self.done, self.total
        ));
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // The next message explains the failure and begins on a line of its own.
        if !self.ended && self.meter.bars {
            output::message("");
        }
    }
}

/// Works on each of these, on so many at once, and returns what came of them in any order.
///
/// # Errors
///
/// The first; the others are given up.
pub async fn each<I, T, E, F>(
    items: impl IntoIterator<Item = I>,
    at_once: usize,
    mut part: Part,
    work: impl Fn(I) -> F,
) -> Result<Vec<T>, E>
where
    F: Future<Output = Result<T, E>> + Send + 'static,
    T: Send + 'static,
    E: Send + 'static,
{
    let mut items = items.into_iter();
    let mut running = JoinSet::new();
    let mut results = Vec::new();
    loop {
        while running.len() < at_once.max(1) {
            let Some(item) = items.next() else { break };
            running.spawn(work(item));
        }
        let Some(ended) = running.join_next().await else {
            part.end();
            return Ok(results);
        };
        match ended {
            Ok(result) => results.push(result?),
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            // Nothing is cancelled before this function returns.
            Err(_) => {}
        }
        part.step(1);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn quiet() -> Meter {
        Meter {
            bars: false,
            lines: false,
        }
    }

    /// Goal: never more at once than allowed, and all of it. Method: count those at work.
    #[tokio::test]
    async fn so_many_are_worked_on_at_once() {
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let work = |number: usize| {
            let (now, most) = (now.clone(), most.clone());
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::task::yield_now().await;
                now.fetch_sub(1, Ordering::SeqCst);
                if number == 1000 {
                    Err(number)
                } else {
                    Ok(number)
                }
            }
        };
        let mut all = each(0..100, 7, quiet().part("", 100), work).await.unwrap();
        all.sort_unstable();
        assert_eq!(all, (0..100).collect::<Vec<_>>());
        assert!(most.load(Ordering::SeqCst) <= 7);
        let failed = each(990..1010, 7, quiet().part("", 20), work).await;
        assert_eq!(failed, Err(1000));
    }
}
