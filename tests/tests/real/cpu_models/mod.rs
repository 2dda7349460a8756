//! Goal: what Berth lets a guest move to is what the guest can move to, and it has the same CPU there.
//!
//! Method: the models are those of libvirt's own CPU map, read when the test runs. They stand for hosts as
//! hypervisors that offer no more than a processor of some generation has; real guests move between them.

mod emulator;
mod map;
mod moves;

pub(crate) use moves::guests_move_between_generations_and_keep_their_cpus;
