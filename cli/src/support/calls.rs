//! The calls whose responses are in a bundle, as the commands make them.
//!
//! Not here: making them (`collect`), and answering commands with what was recorded (`recorded`).
//!
//! Invariant: each changes nothing, and none returns a console, a grant or a template of a VM.

/// How much of a response is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Amount {
    /// All of it, and all pages of a list.
    Whole,
    /// The last operations.
    LastOperations,
    /// The first page, which begins with the last ones.
    Page,
}

/// Every call, in the order in which they are made, and how much of its response is recorded.
pub(super) const CALLS: [(&str, Amount); 12] = [
    (STATUS, Amount::Whole),
    (
        "/berth.cluster.v1.ClusterService/ListServices",
        Amount::Whole,
    ),
    (
        "/berth.cluster.v1.ClusterService/GetRecovery",
        Amount::Whole,
    ),
    (
        "/berth.cluster.v1.ClusterService/ListRevokedCertificates",
        Amount::Whole,
    ),
    ("/berth.host.v1.HostService/ListHosts", Amount::Whole),
    (
        "/berth.host.v1.HostService/ListMemorySignals",
        Amount::Whole,
    ),
    (
        "/berth.policy.v1.PolicyService/GetSchedulingPolicy",
        Amount::Whole,
    ),
    (
        "/berth.policy.v1.AggregateService/ListAggregates",
        Amount::Whole,
    ),
    (
        "/berth.policy.v1.AggregateService/ListAvailabilityZones",
        Amount::Whole,
    ),
    (
        "/berth.operation.v1.OperationService/ListOperations",
        Amount::LastOperations,
    ),
    (
        "/berth.audit.v1.AuditService/ListAuditEntries",
        Amount::Page,
    ),
    ("/berth.audit.v1.AuditService/ListRefusals", Amount::Page),
];

/// The status of the cluster, as one member has it.
pub(super) const STATUS: &str = "/berth.cluster.v1.ClusterService/GetClusterStatus";
/// What a member states of itself.
pub(super) const DIAGNOSTICS: &str = "/berth.cluster.v1.ClusterService/GetDiagnostics";

/// Returns their methods.
#[cfg(test)]
pub(super) fn methods() -> impl Iterator<Item = super::messages::Method> {
    let paths = CALLS.iter().map(|(path, _)| path);
    paths.filter_map(|path| super::messages::method(path))
}

#[cfg(test)]
mod tests {
    use berth_process::access::table;
    use berth_tls::Role;

    use super::super::messages::method;
    use super::*;

    /// Goal: a bundle is made of reads. Method: what a reader's certificate may call changes nothing.
    #[test]
    fn every_call_is_a_read_of_this_build() {
        assert_eq!(methods().count(), CALLS.len());
        for (path, _) in CALLS {
            assert!(
                table::may(Role::Reader, path.trim_start_matches('/')),
                "{path}"
            );
        }
        assert!(method(DIAGNOSTICS).is_some());
    }
}
