//! The span of the task that runs: what spans and calls in it become children of.
//!
//! Invariant: a task without a recorded span has none, and what it spawns has none unless it is passed
//! on with [`within`].

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::futures::TaskLocalFuture;
use tokio_util::either::Either;

use crate::context::SpanContext;
use crate::recorder;

/// Links of a span at most; further ones are left out.
const LINKS_MAX: usize = 8;

tokio::task_local! {
    static CURRENT: Arc<Active>;
}

/// A span that is not ended, as others refer to it.
#[derive(Debug)]
pub struct Active {
    context: SpanContext,
    links: Mutex<Vec<SpanContext>>,
}

impl Active {
    /// Returns the span of this identity.
    #[must_use]
    pub fn new(context: SpanContext) -> Arc<Self> {
        Arc::new(Self {
            context,
            links: Mutex::default(),
        })
    }

    /// Returns its identity.
    #[must_use]
    pub fn context(&self) -> SpanContext {
        self.context
    }

    /// Links it to a span of another trace.
    pub fn link(&self, to: SpanContext) {
        // What it guards is whole between any two statements.
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        let is_other = to.trace != self.context.trace && !links.contains(&to);
        if is_other && links.len() < LINKS_MAX {
            links.push(to);
        }
    }

    pub(crate) fn take_links(&self) -> Vec<SpanContext> {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut links)
    }
}

/// Returns the span of this task, if it has one.
#[must_use]
pub fn current() -> Option<Arc<Active>> {
    if !recorder::is_on() {
        return None;
    }
    CURRENT.try_with(Arc::clone).ok()
}

/// Returns a future that runs in a span; the same future if there is none.
pub fn within<F: Future>(
    active: Option<Arc<Active>>,
    future: F,
) -> Either<TaskLocalFuture<Arc<Active>, F>, F> {
    match active {
        Some(active) => Either::Left(CURRENT.scope(active, future)),
        None => Either::Right(future),
    }
}
