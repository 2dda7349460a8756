//! An allocator that counts: how often memory was requested, and how much.
//!
//! Not here: what is freed. A price is what is requested, whenever it is given back.
//!
//! Invariant: the counts are of one thread, so that what a test harness does beside is in none.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, counted.
pub(crate) struct Counting;

/// What was requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Requested {
    /// How many allocations.
    pub(crate) times: u64,
    /// How many bytes.
    pub(crate) bytes: u64,
}

thread_local! {
    // Without a destructor and made at compile time: the allocator may touch it at any time.
    static REQUESTED: Cell<Requested> = const { Cell::new(Requested { times: 0, bytes: 0 }) };
}

fn count(bytes: usize) {
    REQUESTED.with(|requested| {
        let Requested {
            times,
            bytes: before,
        } = requested.get();
        requested.set(Requested {
            times: times + 1,
            bytes: before + bytes as u64,
        });
    });
}

/// Does some work and returns what it requested.
pub(crate) fn counted<T>(work: impl FnOnce() -> T) -> (T, Requested) {
    let before = REQUESTED.with(Cell::get);
    let result = work();
    let after = REQUESTED.with(Cell::get);
    let requested = Requested {
        times: after.times - before.times,
        bytes: after.bytes - before.bytes,
    };
    (result, requested)
}

#[expect(unsafe_code, reason = "the trait of allocators is unsafe")]
// SAFETY: every call is the same call of the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the contract of this same method.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }
}
