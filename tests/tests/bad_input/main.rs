//! What is wrong is told: what, where, and what to do about it; with an exit status that is not
//! 0 where it cannot go on, and with nothing lost.
//!
//! Method: the real programs are given wrong files, flags, names, directories and disks.

mod bench;
mod configuration;
mod directory;
mod full_disk;
mod names;
mod small_disk;
