//! The integration tests of the hypervisor drivers, in one binary.
//!
//! | module | what it tests |
//! |---|---|
//! | `cpu` | what is reported of a hypervisor's CPUs |
//! | `disks` | the transfer of disks between simulated hypervisors |
//! | `guest_record` | the stored record of a guest keeps its form |
//! | `sim` | the simulated hypervisor as a driver |
//! | `xml` | the domain XML, against golden files |

mod cpu;
mod disks;
mod guest_record;
mod sim;
mod xml;
