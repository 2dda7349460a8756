//! Schedulers of several clusters among the addresses of a command, as after a restore while members of the
//! old group still run, or where a client names the old ones.
//!
//! Invariant: what is shown is of one cluster. Of a cluster and one that was recovered from it the recovered
//! one is shown; of others that of the first address at which a scheduler answers.

use berth_domain::recovery::era_of;
use berth_proto::cluster::v1::cluster_service_client::ClusterServiceClient;
use berth_proto::cluster::v1::{GetClusterStatusRequest, GetClusterStatusResponse};
use serde_json::{Value, json};

use crate::output::Lines;
use crate::session::{Session, without_scheme};

/// A scheduler of another cluster than the one that is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Other {
    /// Its address, as it was given.
    address: String,
    cluster_id: String,
    /// Whether its cluster has been recovered less often than the one that is shown: it may be what that
    /// one was recovered from, which no scheduler knows.
    is_earlier: bool,
}

impl Other {
    pub(super) fn to_json(&self) -> Value {
        json!({"address": without_scheme(&self.address), "cluster_id": self.cluster_id,
               "fewer_recoveries": self.is_earlier})
    }
}

/// Leaves out the schedulers of all clusters but one, and returns them.
pub(super) async fn leave_out(session: &Session) -> Vec<Other> {
    let get_status = |channel| async move {
        let request = GetClusterStatusRequest {};
        ClusterServiceClient::new(channel)
            .get_cluster_status(request)
            .await
    };
    let others = apart(session.each(get_status).await);
    for other in &others {
        session.leave_out(&other.address);
    }
    others
}

/// Returns those of other clusters than the one that is to be shown, of what schedulers answer.
fn apart(answers: Vec<(String, GetClusterStatusResponse)>) -> Vec<Other> {
    let members = || {
        answers
            .iter()
            .filter(|(_, status)| !status.cluster_id.is_empty())
    };
    let era = |status: &GetClusterStatusResponse| era_of(status.applied_index);
    let latest = members().map(|(_, status)| era(status)).max();
    let Some(latest) = latest else {
        return Vec::new();
    };
    let shown = members().find(|(_, status)| era(status) == latest);
    let shown = shown.map_or("", |(_, status)| &status.cluster_id);
    let others = members().filter(|(_, status)| status.cluster_id != shown);
    let others = others.map(|(address, status)| Other {
        address: address.clone(),
        cluster_id: status.cluster_id.clone(),
        is_earlier: era(status) < latest,
    });
    others.collect()
}

/// Describes them in one warning; nothing where there are none.
pub(super) fn warning(shown: &str, others: &[Other]) -> Option<Lines> {
    if others.is_empty() {
        return None;
    }
    let named = others.iter().map(|other| {
        let when = match other.is_earlier {
            true => ", which was recovered less often",
            false => "",
        };
        let address = without_scheme(&other.address);
        format!("{address} is of cluster {}{when}", other.cluster_id)
    });
    let named: Vec<String> = named.collect();
    let help = match others.iter().any(|other| other.is_earlier) {
        true => {
            "name the schedulers of one cluster with --scheduler, and stop for good those that it was \
                 recovered from"
        }
        false => "name the schedulers of one cluster with --scheduler",
    };
    let text = format!(
        "warning: schedulers of several clusters answer: {}; cluster {shown} is shown, and they are left out: \
         {help}",
        named.join(", ")
    );
    Some(text.into())
}

#[cfg(test)]
mod tests {
    use berth_domain::recovery::JUMP;

    use super::*;

    fn answer(address: &str, cluster: &str, index: u64) -> (String, GetClusterStatusResponse) {
        let status = GetClusterStatusResponse {
            cluster_id: cluster.to_owned(),
            applied_index: index,
            ..GetClusterStatusResponse::default()
        };
        (format!("http://{address}"), status)
    }

    #[track_caller]
    fn check(answers: &[(&str, &str, u64)], expected: &[(&str, bool)]) {
        let answers = answers
            .iter()
            .map(|(a, cluster, index)| answer(a, cluster, *index));
        let others = apart(answers.collect());
        let left = others
            .iter()
            .map(|other| (without_scheme(&other.address), other.is_earlier));
        assert_eq!(left.collect::<Vec<_>>(), expected);
    }

    /// Goal: one cluster is left, the recovered one where there is one, whatever the order of the addresses.
    #[test]
    fn the_recovered_cluster_is_shown() {
        check(&[], &[]);
        check(&[("a:1", "x", 7)], &[]);
        check(&[("a:1", "x", 7), ("b:1", "x", 9)], &[]);
        check(&[("a:1", "x", 7), ("b:1", "y", JUMP + 1)], &[("a:1", true)]);
        check(&[("b:1", "y", JUMP + 1), ("a:1", "x", 7)], &[("a:1", true)]);
        check(&[("a:1", "x", 7), ("b:1", "y", 9)], &[("b:1", false)]);
        check(
            &[
                ("a:1", "x", 7),
                ("b:1", "y", JUMP),
                ("c:1", "z", JUMP + 9),
                ("d:1", "y", JUMP),
            ],
            &[("a:1", true), ("c:1", false)],
        );
        // A member that has not joined yet is of no cluster.
        check(&[("a:1", "", 0), ("b:1", "y", 9)], &[]);
    }

    #[test]
    fn the_warning_names_both_clusters_and_what_to_do() {
        assert!(warning("y", &[]).is_none());
        let others = apart(vec![answer("a:1", "x", 7), answer("b:1", "y", JUMP)]);
        let text = warning("y", &others).expect("a warning").to_string();
        assert_eq!(text.lines().count(), 1, "{text}");
        for part in [
            "a:1 is of cluster x",
            "recovered less often",
            "cluster y is shown",
            "stop for good those that it was recovered from",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
