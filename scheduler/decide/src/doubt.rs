//! What is known of a command that this member gave out of its hands: whether it may take effect
//! without an outcome having been seen.
//!
//! ```text
//!   begin ─▶ in doubt ─▶ close (an outcome, or proof that nothing was done) ─▶ not in doubt
//!               │
//!               └▶ a response without proof, a timeout, a dropped future: stays in doubt
//! ```
//!
//! An attempt is recorded before anything of it can leave this member, and only [`Doubt::close`]
//! takes that back. A wait for a response can end at any await point, by a timeout that drops the
//! future too; none of them has to record anything.
//!
//! Invariant: while an attempt may still take effect, the doubt is open.

/// Whether attempts to execute one command may still take effect.
#[derive(Debug, Default)]
pub struct Doubt {
    /// Attempts that were begun and not closed.
    open: u32,
}

/// An attempt to execute a command. Dropping it leaves it in doubt.
#[derive(Debug)]
#[must_use = "an attempt that is not closed stays in doubt"]
pub struct Attempt(());

impl Doubt {
    /// Records an attempt that is about to be made.
    pub fn begin(&mut self) -> Attempt {
        self.open += 1;
        Attempt(())
    }

    /// Records that an attempt has its outcome, or has provably no effect now or later.
    pub fn close(&mut self, attempt: Attempt) {
        let Attempt(()) = attempt;
        self.open -= 1;
    }

    /// Returns whether an attempt may still take effect.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open > 0
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Goal: a wait that is cut off leaves the doubt. Method: a timeout drops the future in the
    /// middle of an attempt.
    #[tokio::test]
    async fn an_attempt_that_is_cut_off_stays_in_doubt() {
        let mut doubt = Doubt::default();
        let first = doubt.begin();
        doubt.close(first);
        assert!(!doubt.is_open());
        let attempt = async {
            let attempt = doubt.begin();
            std::future::pending::<()>().await;
            doubt.close(attempt);
        };
        let cut_off = tokio::time::timeout(Duration::from_millis(1), attempt).await;
        assert!(cut_off.is_err() && doubt.is_open());
        // A later attempt with an outcome says nothing about the one before.
        let later = doubt.begin();
        doubt.close(later);
        assert!(doubt.is_open());
    }
}
