//! Free ports of the loopback interface for processes that cannot choose one themselves.

use std::net::TcpListener;

/// Returns distinct ports that were free a moment ago.
///
/// # Errors
///
/// When the loopback interface has none.
pub fn free_ports(number: usize) -> anyhow::Result<Vec<u16>> {
    let listeners = (0..number)
        .map(|_| TcpListener::bind(("127.0.0.1", 0)))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(listeners
        .iter()
        .map(|l| l.local_addr().map(|a| a.port()))
        .collect::<Result<Vec<_>, _>>()?)
}
