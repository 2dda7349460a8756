//! Work that takes a processor for seconds beside a member that has to answer in milliseconds: it is done
//! at a lower priority.
//!
//! The state of a large cluster is encoded, checked or made again while commands are decided. On a
//! machine whose processors are all busy, a thread of the same priority takes its turn of some
//! milliseconds whenever a request arrives, and requests wait for it. A thread of a lower one has what
//! the others leave, and at least about a tenth of a processor.
//!
//! Not here: how many such works run at once, which each caller bounds.

use std::panic::resume_unwind;
use std::thread;

use tokio::runtime::Handle;

/// By how much the nice value is raised: the weight of such a thread is about a tenth of another's.
const NICER: i32 = 10;

/// Does work on a thread that gives way to the others of the process, and waits for it. Callers are
/// threads that may block; the work is in the runtime that its caller is in, if any. The threads that it
/// starts have the lower priority as well.
///
/// # Panics
///
/// If the work does, or if the system starts no more threads.
pub fn in_background<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let runtime = Handle::try_current().ok();
    // A thread cannot raise its priority again, so that it is no thread of a pool.
    thread::scope(|scope| {
        let background = thread::Builder::new().name("background".to_owned());
        let lowered = || {
            let _inside = runtime.as_ref().map(Handle::enter);
            // Without a lower priority the work is the same.
            let _ = rustix::process::nice(NICER);
            work()
        };
        let thread = background.spawn_scoped(scope, lowered);
        let done = thread.expect("the system starts a thread").join();
        done.unwrap_or_else(|panic| resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use rustix::process::getpriority_process;

    use super::*;

    /// Goal: the work, and what it starts, has the lower priority, and its caller keeps its own.
    #[test]
    fn only_the_work_has_the_lower_priority() {
        let priority = || getpriority_process(None).expect("a thread has a priority");
        let own = priority();
        let (of_work, of_its_thread) = in_background(|| {
            (
                priority(),
                thread::spawn(priority).join().expect("no panic"),
            )
        });
        assert_eq!(of_work, (own + NICER).min(19));
        assert_eq!(of_its_thread, of_work);
        assert_eq!(priority(), own);
    }

    /// Goal: work that sends to a client can wait for it.
    #[tokio::test]
    async fn the_work_is_in_the_runtime_of_its_caller() {
        let work = || in_background(|| Handle::current().block_on(async { 7 }));
        assert_eq!(tokio::task::spawn_blocking(work).await.ok(), Some(7));
    }

    #[test]
    fn a_panic_of_the_work_is_the_callers() {
        let work = || -> () { panic!("rows and hash have come apart") };
        let panic = catch_unwind(AssertUnwindSafe(|| in_background(work)));
        let panic = panic.expect_err("the work panics");
        let message = panic.downcast_ref::<&str>();
        assert_eq!(message, Some(&"rows and hash have come apart"));
    }
}
