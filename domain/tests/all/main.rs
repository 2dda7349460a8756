//! The integration tests of the fit and of the flavors' extra specs, in one binary.
//!
//! | module | what it tests |
//! |---|---|
//! | `cpu_model` | what guests see as their processor |
//! | `devices` | PCI functions of guests |
//! | `exact` | the whole fit against a solver that tries everything |
//! | `filter` | the language of filters |
//! | `fit` | the fit of memory that is promised once |
//! | `memory` | how far memory is over-committed |
//! | `pmem` | persistent memory in the fit |
//! | `requirements` | extra specs and image properties |

mod cpu_model;
mod devices;
mod exact;
mod filter;
mod fit;
mod memory;
mod pmem;
mod requirements;
