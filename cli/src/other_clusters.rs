//! Schedulers of several clusters among the addresses of a command, as after a restore while members of the
//! old group still run, or where a client names the old ones.
//!
//! Invariant: a command is carried out in one cluster, or shows one. Of a cluster and one that was recovered
//! from it that is the recovered one; of others that of the first address at which a scheduler answers.

use berth_domain::recovery::era_of;
use berth_proto::cluster::v1::GetClusterStatusResponse;
use serde_json::{Value, json};

use crate::address::without_scheme;
use crate::output::{self, Format, Lines};

/// The cluster that a command is for, of those whose schedulers answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chosen {
    /// Its id; empty if no scheduler answers, or one alone is named.
    pub(crate) cluster_id: String,
    /// The [era](era_of) of its revisions.
    pub(crate) era: u64,
    /// The addresses of its schedulers that answered, in the order in which they were given.
    pub(crate) addresses: Vec<String>,
    /// The schedulers of other clusters.
    pub(crate) others: Vec<Other>,
}

/// A scheduler of another cluster than the one that the command is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Other {
    /// Its address, as it was given.
    pub(crate) address: String,
    cluster_id: String,
    /// Whether its cluster has been recovered less often than the one that the command is for: it may be what that
    /// one was recovered from, which no scheduler knows.
    is_earlier: bool,
}

impl Other {
    pub(crate) fn to_json(&self) -> Value {
        json!({"address": without_scheme(&self.address), "cluster_id": self.cluster_id,
               "fewer_recoveries": self.is_earlier})
    }
}

/// Chooses a cluster, of what schedulers answer.
pub(crate) fn choose(answers: Vec<(String, GetClusterStatusResponse)>) -> Chosen {
    let members = || {
        answers
            .iter()
            .filter(|(_, status)| !status.cluster_id.is_empty())
    };
    let era = |status: &GetClusterStatusResponse| era_of(status.applied_index);
    let latest = members().map(|(_, status)| era(status)).max();
    let chosen = latest.and_then(|latest| members().find(|(_, status)| era(status) == latest));
    let Some((_, chosen)) = chosen else {
        return Chosen::default();
    };
    let is_of = |status: &GetClusterStatusResponse| status.cluster_id == chosen.cluster_id;
    let own = members().filter(|(_, status)| is_of(status));
    let others = members().filter(|(_, status)| !is_of(status));
    let others = others.map(|(address, status)| Other {
        address: address.clone(),
        cluster_id: status.cluster_id.clone(),
        is_earlier: era(status) < era(chosen),
    });
    Chosen {
        cluster_id: chosen.cluster_id.clone(),
        era: era(chosen),
        addresses: own.map(|(address, _)| address.clone()).collect(),
        others: others.collect(),
    }
}

/// Reports on standard error which schedulers are left out; nothing where none is.
pub(crate) fn report(chosen: &Chosen, format: Format) {
    let Some(warning) = warning(chosen) else {
        return;
    };
    let others: Value = chosen.others.iter().map(Other::to_json).collect();
    let object = json!({"cluster_id": chosen.cluster_id, "other_clusters": others});
    output::note(format, warning, &object);
}

/// Describes them in one warning; nothing where there are none.
fn warning(chosen: &Chosen) -> Option<Lines> {
    let Chosen {
        cluster_id, others, ..
    } = chosen;
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
        "warning: schedulers of several clusters answer: {}; this command is for cluster {cluster_id}, and \
         they are left out: {help}",
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
        let chosen = choose(answers.collect());
        let left = chosen
            .others
            .iter()
            .map(|other| (without_scheme(&other.address), other.is_earlier));
        assert_eq!(left.collect::<Vec<_>>(), expected);
    }

    /// Goal: one cluster is left, the recovered one where there is one, whatever the order of the addresses.
    #[test]
    fn the_recovered_cluster_is_chosen() {
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
        assert!(warning(&Chosen::default()).is_none());
        let chosen = choose(vec![answer("a:1", "x", 7), answer("b:1", "y", JUMP)]);
        let text = warning(&chosen).expect("a warning").to_string();
        assert_eq!(text.lines().count(), 1, "{text}");
        for part in [
            "a:1 is of cluster x",
            "recovered less often",
            "for cluster y",
            "stop for good those that it was recovered from",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
