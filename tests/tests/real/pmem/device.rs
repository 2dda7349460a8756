//! A device of persistent memory as a guest sees it: mapped, neither read nor written through a
//! program that is tested.
//!
//! What this is not: safe against others. Who else maps it changes it; the scenarios are the only
//! program in the machine.
#![allow(unsafe_code)]

use std::fs::File;
use std::path::Path;
use std::ptr;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

pub(crate) const MIB: u64 = 1 << 20;

/// A mapped device.
pub(crate) struct Device {
    start: *mut u8,
    length: usize,
}

impl Device {
    /// Maps all of a device; its size is what was told of it.
    pub(crate) fn map(path: &Path, size_bytes: u64) -> Self {
        let file = File::options().read(true).write(true).open(path).unwrap();
        let length = usize::try_from(size_bytes).unwrap();
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at a place that the kernel chooses; nothing else is there.
        let start = unsafe { mmap(ptr::null_mut(), length, rights, MapFlags::SHARED, &file, 0) };
        Self {
            start: start.unwrap().cast(),
            length,
        }
    }

    pub(crate) fn read(&self, offset: u64, length: usize) -> Vec<u8> {
        let offset = usize::try_from(offset).unwrap();
        assert!(offset + length <= self.length);
        let mut bytes = vec![0; length];
        // SAFETY: within the mapping, as was just held, and `bytes` is as long and elsewhere.
        unsafe { ptr::copy_nonoverlapping(self.start.add(offset), bytes.as_mut_ptr(), length) };
        bytes
    }

    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) {
        let offset = usize::try_from(offset).unwrap();
        assert!(offset + bytes.len() <= self.length);
        // SAFETY: within the mapping, as was just held, and `bytes` is elsewhere.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.add(offset), bytes.len()) };
    }
}

impl Device {
    /// Writes into each MiB.
    pub(crate) fn fill(&self, bytes: &[u8]) {
        for place in self.places() {
            self.write(place, bytes);
        }
    }

    /// Returns whether that is in any MiB still.
    pub(crate) fn holds(&self, bytes: &[u8]) -> bool {
        let mut places = self.places();
        places.any(|place| self.read(place, bytes.len()) == bytes)
    }

    fn places(&self) -> impl Iterator<Item = u64> + use<> {
        (0..self.length as u64).step_by(1 << 20)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: this owns the mapping, and nothing refers to it any more.
        unsafe { munmap(self.start.cast(), self.length) }.unwrap();
    }
}
