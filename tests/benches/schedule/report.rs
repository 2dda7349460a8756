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

/// Prints the processor time of each decision: of each member, the leader being the one with most, and
/// of all clients, in microseconds.
pub(crate) fn cpu(each: &[f64]) {
    let Some((clients, members)) = each.split_last() else {
        return;
    };
    let mut members = members.to_vec();
    members.sort_by(|a, b| b.total_cmp(a));
    let members: Vec<_> = members.iter().map(|us| format!("{us:.0}")).collect();
    println!(
        "  processor time of each, in microseconds: members {}, clients {clients:.0}",
        members.join(" + ")
    );
}
