//! Hypervisors behind one trait: simulated and libvirt
