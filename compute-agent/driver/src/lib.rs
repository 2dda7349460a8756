//! Hypervisors behind one trait: simulated and libvirt

pub mod libvirt;
