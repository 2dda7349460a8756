//! The search for the exact CPUs and pages of a host that answer a guest's wish.
use serde::{Deserialize, Serialize};
/// Ratios in thousandths up to which shared CPUs and unaccounted memory of a cell are given away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Limits {
    /// Shared vCPUs per shared CPU.
    pub cpu_ratio_milli: u64,
    /// Memory.
    pub ram_ratio_milli: u64,
}
/// Which of the cells that fit are taken first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Strategy {
    /// The emptiest.
    Spread,
    /// The fullest.
    Pack,
}
/// Why a guest cell fits nowhere.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shortfall {}
/// Fits.
pub fn fit() {}
