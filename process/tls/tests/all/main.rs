//! The integration tests of certificates and connections, in one binary.
//!
//! | module | what it tests |
//! |---|---|
//! | `authority` | making and reading certificates |
//! | `handshake` | which peers are accepted, and how the others are refused |
//! | `hypervisor` | certificates of libvirtd and QEMU |
//! | `common` | an authority in a temporary directory, for both |

mod authority;
mod common;
mod handshake;
mod hypervisor;
