//! The allocator of every program that has a server inside.
//!
//! The state is made of persistent maps: many small objects, made by one thread and dropped by
//! another. With glibc's allocator about a quarter of a leader's processor time was in `malloc`,
//! `free` and the kernel's work for its arenas. What mimalloc saves was between 4 and 40 % in two
//! runs beside each other on a busy machine, so measure before relying on it.
//!
//! It asks the kernel for no huge pages (the feature `no_thp`). With them, three members with 64
//! clients that claim had a fifth more to do, all of it clearing memory that was hardly used.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
