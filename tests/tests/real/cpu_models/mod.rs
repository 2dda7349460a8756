//! Goal: Berth's verdicts about CPUs are libvirt's, and what it lets a guest move to is what the guest can
//! move to.
//!
//! Method: the models are those of libvirt's own CPU map, read when the test runs. They stand for hosts in
//! two ways: as descriptions, which libvirt intersects, and as hypervisors that offer no more than a
//! processor of some generation has, which libvirt compares with guests. Real guests move between the latter.

mod emulator;
mod map;
mod matrix;
mod moves;

pub(crate) use matrix::{
    every_pair_of_hypervisors_agrees_with_libvirt, every_pair_of_models_agrees_with_libvirt,
};
pub(crate) use moves::guests_move_between_generations_and_keep_their_cpus;
