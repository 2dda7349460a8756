//! The compute agent of one host: it drives the hypervisor for the conductor, and never decides
//! placement alone. It fits, then confirms, swaps or refuses the claim.
//!
//! | room | what |
//! |---|---|
//! | [`core`] | which calls are taken and what they lead to, without I/O |

pub mod core;
