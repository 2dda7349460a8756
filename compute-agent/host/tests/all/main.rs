//! The integration tests of host discovery, in one binary.
//!
//! | module | what it tests |
//! |---|---|
//! | `discovery` | CPUs, NUMA nodes and pages from recorded sysfs trees |
//! | `pci` | PCI functions, and the rules that select them |
//! | `signals` | the kernel's memory figures |

mod discovery;
mod pci;
mod signals;
