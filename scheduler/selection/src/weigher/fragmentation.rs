//! Large holes: guests go where a cell is begun already, so that wholly free cells stay so for
//! guests that need one, or several of one host.

/// Returns the most where the cell that the guest goes to is taken in part already.
#[must_use]
pub fn weigh(left: u16, taken: u16, cell: u16) -> u16 {
    if left.saturating_add(taken) >= cell {
        0
    } else {
        u16::MAX
    }
}
