//! What is wrong is told: what, where, and what to do about it; with an exit status that is not
//! 0 where it cannot go on, and with nothing lost.
//!
//! Method: the real programs are given wrong files, flags, names and directories.
//! What a full disk does is in the target `real`, since it takes a file system of its own.

mod configuration;
mod directory;
mod names;
