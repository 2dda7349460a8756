//! The table of all measured phases.

use berth_tests::measure::figures::Figures;

/// Prints the head of the table.
pub(crate) fn head() {
    println!(
        "{:<28} {:>7} {:>7} {:>10} {:>9} {:>9} {:>8} {:>9}",
        "what", "members", "clients", "per second", "p50 ms", "p99 ms", "failed", "to etcd"
    );
}

/// Prints one row; `etcd` is etcd's rate with as many members and clients.
pub(crate) fn row(
    what: &str,
    members: usize,
    clients: usize,
    figures: &Figures,
    etcd: Option<f64>,
) {
    let ratio = etcd.map_or("-".to_owned(), |e| format!("{:.2}", figures.rate() / e));
    println!(
        "{what:<28} {members:>7} {clients:>7} {:>10.0} {:>9.2} {:>9.2} {:>8} {ratio:>9}",
        figures.rate(),
        figures.quantile_ms(0.5),
        figures.quantile_ms(0.99),
        figures.failures,
    );
}
