//! The schedulers: each as it answers for itself, and all of them together.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use berth_domain::refusal::{Code, Refusal};
use berth_domain::version::ServiceVersion;
use berth_proto::cluster::v1::cluster_service_client::ClusterServiceClient;
use berth_proto::cluster::v1::{GetClusterStatusRequest, GetClusterStatusResponse, Member, member};
use tonic::{Response, Status};

use super::finding::{Finding, count};
use crate::address::without_scheme;
use crate::cluster::{cluster_version, last_backup, leader_status, version_of};
use crate::output::some;
use crate::session::Session;

/// The largest difference of two clocks that is taken for none: the time in a response has whole seconds.
const CLOCKS_DIFFER_MAX_S: u64 = 2;

/// The longest time that an answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// How many entries of the log a member may be behind.
const BEHIND_MAX: u64 = 10_000;

/// From how many milliseconds on a disk is warned of that has not answered a write.
const DISK_SILENT_MIN_MS: u64 = 1_000;

/// What a scheduler answered for itself.
pub(super) struct Answer {
    /// Its address, as it was given.
    pub(super) address: String,
    /// Its status, or why there is none.
    pub(super) outcome: Result<Own, Refusal>,
}

/// A status, and what comes with it.
#[derive(Clone)]
pub(super) struct Own {
    /// The status.
    pub(super) status: GetClusterStatusResponse,
    /// How many seconds the clock of its machine is ahead of that of this machine.
    pub(super) ahead_s: Option<i64>,
    /// How long the answer took.
    pub(super) took: Duration,
}

/// Checks all schedulers of the command; returns whether one answers.
pub(super) async fn check(session: &Session, findings: &mut Vec<Finding>) -> bool {
    let mut answers = Vec::new();
    for address in session.schedulers() {
        let outcome = ask(session, address).await;
        answers.push(Answer {
            address: without_scheme(address).to_owned(),
            outcome,
        });
    }
    findings.extend(answers.iter().map(own));
    let first = answers.iter().find_map(|a| a.outcome.as_ref().ok());
    let Some(first) = first else {
        return false;
    };
    // One of those that answered leads, or one that the command was not given.
    let own = leading(&answers).map(|own| own.status.clone());
    let leader = match own {
        Some(leader) => Some(leader),
        None => leader_status(session, &first.status).await,
    };
    findings.extend(together(&answers, leader.as_ref()));
    true
}

async fn ask(session: &Session, address: &str) -> Result<Own, Refusal> {
    let begun = SystemTime::now();
    let answered = session.at_one(address, |channel| async move {
        let request = GetClusterStatusRequest {};
        let mut client = ClusterServiceClient::new(channel);
        let response = client.get_cluster_status(request).await?;
        let date = response.metadata().get("date");
        let date = date.and_then(|date| httpdate::parse_http_date(date.to_str().ok()?).ok());
        Ok::<_, Status>(Response::new((response.into_inner(), date)))
    });
    let (status, date) = answered.await?;
    let took = begun.elapsed().unwrap_or_default();
    let ahead_s = date.map(|date| seconds(date).saturating_sub(seconds(begun + took / 2)));
    Ok(Own {
        status,
        ahead_s,
        took,
    })
}

fn seconds(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// Returns the answer of the leader; of two that believe to lead, that of the later term.
pub(super) fn leading(answers: &[Answer]) -> Option<&Own> {
    let answered = answers.iter().filter_map(|a| a.outcome.as_ref().ok());
    // One that has joined no cluster yet has no number, and knows no leader.
    let leading = answered.filter(|own| {
        let status = &own.status;
        status.leader_id != 0 && status.leader_id == status.member_id
    });
    leading.max_by_key(|own| own.status.term)
}

/// Judges the answer of one scheduler.
fn own(answer: &Answer) -> Finding {
    const CHECK: &str = "scheduler";
    let finding = match &answer.outcome {
        Err(refusal) => {
            let hint = refusal.hint.clone();
            if refusal.code == Code::Unimplemented {
                let message = "what answers there is no scheduler";
                let hint = hint.unwrap_or_else(|| "name the schedulers".to_owned());
                Finding::failed(CHECK, message, hint)
            } else if refusal.message.contains("lookup address") {
                let hint = "correct the name, or have this machine resolve it (getent hosts NAME)";
                Finding::failed(CHECK, &refusal.message, hint)
            } else {
                let other = "start it, or leave its address out";
                let hint = hint.unwrap_or_else(|| other.to_owned());
                Finding::failed(CHECK, &refusal.message, hint)
            }
        }
        Ok(own) => {
            let status = &own.status;
            let part = match status.leader_id {
                0 => "knows no leader".to_owned(),
                leader if leader == status.member_id => "leads".to_owned(),
                leader => format!("follows member {leader}"),
            };
            let (member, silent) = (status.member_id, status.disk_silent_ms);
            let (is_stuck, is_slow) = (silent >= DISK_SILENT_MIN_MS, own.took > ANSWER_MAX);
            match (is_stuck, is_slow) {
                (true, _) => Finding::warning(
                    CHECK,
                    format!("member {member}: its disk has not answered a write for {silent} ms"),
                    "look for errors and for load of the disk with its data directory",
                ),
                (false, true) => Finding::warning(
                    CHECK,
                    format!(
                        "member {member} {part}; it answered after {} ms",
                        own.took.as_millis()
                    ),
                    "look for load of its machine, and of the network to it",
                ),
                (false, false) => Finding::ok(CHECK, format!("member {member} {part}")),
            }
        }
    };
    finding.of(&answer.address)
}

/// Judges what all that answered state together; `leader` is the status of the leader, if one answers.
pub(super) fn together(
    answers: &[Answer],
    leader: Option<&GetClusterStatusResponse>,
) -> Vec<Finding> {
    let answered = answers
        .iter()
        .filter_map(|answer| Some((&*answer.address, answer.outcome.as_ref().ok()?)));
    let answered: Vec<(&str, &Own)> = answered.collect();
    let mut findings = Vec::new();
    findings.extend(twice(&answered));
    findings.extend([clocks(&answered), cluster(&answered)]);
    findings.push(leads(&answered, leader));
    if let Some(leader) = leader {
        findings.push(members(leader));
        findings.push(quorum(leader));
        findings.extend(unnamed(answers, &answered, leader));
        findings.push(versions(leader));
    }
    findings.extend(states(&answered));
    findings.push(backups(&answered));
    findings.extend(recovery(&answered));
    findings
}

/// Reports addresses that lead to one scheduler: where there seem to be several there is one.
fn twice(answered: &[(&str, &Own)]) -> Option<Finding> {
    let mut addresses: BTreeMap<(&str, u64), Vec<&str>> = BTreeMap::new();
    for (address, own) in answered {
        let status = &own.status;
        let member = (status.cluster_id.as_str(), status.member_id);
        addresses.entry(member).or_default().push(*address);
    }
    // Those that have joined no cluster yet have no number.
    let several = |((_, member), of): &(&(&str, u64), &Vec<&str>)| *member != 0 && of.len() > 1;
    let ((_, member), addresses) = addresses.iter().find(several)?;
    Some(Finding::warning(
        "addresses",
        format!("{} are all of member {member}", addresses.join(", ")),
        "name each scheduler once",
    ))
}

fn clocks(answered: &[(&str, &Own)]) -> Finding {
    const CHECK: &str = "clock";
    let known = answered
        .iter()
        .filter_map(|(address, own)| Some((*address, own.ahead_s?)));
    let known: Vec<(&str, i64)> = known.collect();
    let wrong = known
        .iter()
        .filter(|(_, ahead)| ahead.unsigned_abs() > CLOCKS_DIFFER_MAX_S);
    let wrong: Vec<String> = wrong
        .map(|(address, ahead)| match ahead.is_positive() {
            true => format!("that of {address} is {ahead} s ahead"),
            false => format!("that of {address} is {} s behind", ahead.unsigned_abs()),
        })
        .collect();
    match (known.is_empty(), wrong.is_empty()) {
        (true, _) => Finding::unknown(CHECK, "no scheduler states its time"),
        (false, true) => Finding::ok(
            CHECK,
            format!("it differs from those of the schedulers by at most {CLOCKS_DIFFER_MAX_S} s"),
        ),
        (false, false) => Finding::warning(
            CHECK,
            format!("compared with this machine's, {}", some(&wrong)),
            "synchronise the clocks, as with chrony: certificates and `--since` go by them",
        ),
    }
}

fn cluster(answered: &[(&str, &Own)]) -> Finding {
    const CHECK: &str = "cluster";
    let mut clusters: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (address, own) in answered {
        let id = own.status.cluster_id.as_str();
        clusters.entry(id).or_default().push(*address);
    }
    // One that has no name yet is about to join.
    clusters.remove("");
    if clusters.len() > 1 {
        let each = clusters
            .iter()
            .map(|(id, addresses)| format!("{} of {id}", addresses.join(", ")));
        return Finding::failed(
            CHECK,
            format!(
                "the schedulers are of several clusters: {}",
                each.collect::<Vec<_>>().join("; ")
            ),
            "name the schedulers of one cluster only",
        );
    }
    match clusters.keys().next() {
        Some(id) => Finding::ok(CHECK, (*id).to_owned()),
        None => Finding::unknown(CHECK, "no scheduler states which cluster it is of"),
    }
}

fn leads(answered: &[(&str, &Own)], leader: Option<&GetClusterStatusResponse>) -> Finding {
    const CHECK: &str = "leader";
    if let Some(leader) = leader {
        let message = format!("member {} in term {}", leader.member_id, leader.term);
        return Finding::ok(CHECK, message);
    }
    let members = answered.iter().map(|(_, own)| &own.status.members);
    let voters = members.map(|members| voters(members)).max().unwrap_or(0);
    let message = format!(
        "none answers; {} of {} that vote answer this command",
        count(answered.len(), "member"),
        voters
    );
    let hint = "a majority has to run and reach each other: start the members that do not answer; if they are \
                lost for good, docs/operations.md";
    Finding::failed(CHECK, message, hint)
}

fn voters(members: &[Member]) -> usize {
    let voters = members.iter();
    voters.filter(|m| m.role() == member::Role::Voter).count()
}

fn members(leader: &GetClusterStatusResponse) -> Finding {
    const CHECK: &str = "members";
    let is_silent = |m: &&Member| !(m.recently_active || m.leader);
    let silent: Vec<&Member> = leader.members.iter().filter(is_silent).collect();
    if let Some(first) = silent.first() {
        let names = silent.iter().map(|m| format!("{} ({})", m.id, m.address));
        let names = some(&names.collect::<Vec<_>>());
        let hint = format!(
            "start what does not run; one that is lost for good: `berth cluster remove-member {}`",
            first.id
        );
        let message = format!("the leader has not heard lately from {names}");
        return Finding::failed(CHECK, message, hint);
    }
    let is_behind =
        |m: &&Member| leader.commit_index.saturating_sub(m.matched_index) > BEHIND_MAX && !m.leader;
    let behind = leader.members.iter().filter(is_behind);
    let behind: Vec<String> = behind
        .map(|m| {
            let entries = leader.commit_index - m.matched_index;
            format!("{} ({}) is {entries} entries behind", m.id, m.address)
        })
        .collect();
    match behind.is_empty() {
        true => Finding::ok(
            CHECK,
            format!(
                "the leader hears from each of {}",
                count(leader.members.len(), "member")
            ),
        ),
        false => Finding::warning(
            CHECK,
            some(&behind),
            "wait; if it does not come closer, its machine or the network is too slow",
        ),
    }
}

fn quorum(leader: &GetClusterStatusResponse) -> Finding {
    const CHECK: &str = "quorum";
    let voters = voters(&leader.members);
    match leader.failures_tolerated {
        None => Finding::unknown(CHECK, "the leader does not know it yet"),
        Some(0) if voters < 3 => Finding::warning(
            CHECK,
            format!(
                "the failure of a scheduler stops the cluster: {} {}",
                count(voters, "member"),
                if voters == 1 { "votes" } else { "vote" }
            ),
            "run three, each on a machine of its own: docs/three-machines.md",
        ),
        Some(0) => Finding::warning(
            CHECK,
            "the failure of one more scheduler stops the cluster",
            "start the members that do not answer",
        ),
        Some(failures) => {
            let failures = usize::try_from(failures).unwrap_or(usize::MAX);
            let message = format!("{} would be survived", count(failures, "failure"));
            Finding::ok(CHECK, message)
        }
    }
}

/// Reports members that the command was not given: without those that it was given it finds none.
fn unnamed(
    answers: &[Answer],
    answered: &[(&str, &Own)],
    leader: &GetClusterStatusResponse,
) -> Option<Finding> {
    let known: BTreeSet<u64> = answered
        .iter()
        .map(|(_, own)| own.status.member_id)
        .collect();
    let is_named = |m: &Member| {
        let mut addresses = answers.iter().map(|answer| &*answer.address);
        known.contains(&m.id) || addresses.any(|address| address == without_scheme(&m.address))
    };
    let others: Vec<String> = leader
        .members
        .iter()
        .filter(|m| !is_named(m))
        .map(|m| m.address.clone())
        .collect();
    if others.is_empty() {
        return None;
    }
    let all = leader
        .members
        .iter()
        .map(|m| without_scheme(&m.address).to_owned());
    let all = all.collect::<Vec<_>>().join(",");
    Some(Finding::warning(
        "addresses",
        format!(
            "the cluster has members that the command is not given: {}",
            some(&others)
        ),
        format!("export BERTH_SCHEDULER={all}"),
    ))
}

fn versions(leader: &GetClusterStatusResponse) -> Finding {
    const CHECK: &str = "version";
    let cluster = cluster_version(leader);
    let members: BTreeSet<ServiceVersion> = leader.members.iter().filter_map(version_of).collect();
    let newest = members.last().copied().unwrap_or(cluster);
    if members.len() > 1 {
        return Finding::warning(
            CHECK,
            format!("members run several versions, the newest is {newest}"),
            "upgrade the others: `berth cluster upgrade status`, docs/upgrades.md",
        );
    }
    if newest > cluster {
        return Finding::warning(
            CHECK,
            format!("the cluster version is {cluster}, and its members support {newest}"),
            "`berth cluster upgrade status` shows what runs an older version; then `berth cluster upgrade finalize`",
        );
    }
    if cluster > ServiceVersion::CURRENT {
        return Finding::warning(
            CHECK,
            format!(
                "this command supports {}, and the cluster version is {cluster}",
                ServiceVersion::CURRENT
            ),
            "install the berth of the cluster",
        );
    }
    Finding::ok(CHECK, format!("the cluster version is {cluster}"))
}

/// Reports states that differ where they must not: members that applied the same entries.
fn states(answered: &[(&str, &Own)]) -> Option<Finding> {
    let mut by_index: BTreeMap<(&str, u64), BTreeMap<&str, u64>> = BTreeMap::new();
    for (_, own) in answered {
        let status = &own.status;
        let index = (status.cluster_id.as_str(), status.applied_index);
        let hashes = by_index.entry(index).or_default();
        hashes
            .entry(&*status.state_hash)
            .or_insert(status.member_id);
    }
    let ((_, index), hashes) = by_index.iter().find(|(_, hashes)| hashes.len() > 1)?;
    let members: Vec<String> = hashes.values().map(u64::to_string).collect();
    Some(Finding::failed(
        "state",
        format!(
            "members {} have different states at index {index}",
            members.join(", ")
        ),
        "stop what changes the cluster, and send `berth support bundle` to its developers",
    ))
}

fn backups(answered: &[(&str, &Own)]) -> Finding {
    const CHECK: &str = "backup";
    let scheduled = answered
        .iter()
        .filter_map(|(_, own)| Some((own.status.member_id, own.status.backups.as_ref()?)));
    let scheduled: Vec<_> = scheduled.collect();
    if let Some((member, backups)) = scheduled.iter().find(|(_, b)| !b.failure.is_empty()) {
        return Finding::failed(
            CHECK,
            format!("member {member}: {}", backups.failure),
            "docs/backup.md states what the directory of backups needs",
        );
    }
    let last = scheduled.iter().filter_map(|(_, b)| last_backup(b)).max();
    match (scheduled.is_empty(), last) {
        (true, _) => Finding::warning(
            CHECK,
            "no scheduler that answers makes backups by itself",
            "set [backup] in the configuration of each scheduler: docs/backup.md",
        ),
        (false, Some(last)) => Finding::ok(CHECK, format!("the last one is of {last}")),
        (false, None) => Finding::ok(CHECK, "scheduled; none was made since the start"),
    }
}

/// Reports a recovery that has not ended.
fn recovery(answered: &[(&str, &Own)]) -> Option<Finding> {
    let mut statuses = answered.iter().map(|(_, own)| &own.status);
    let is_open = |status: &&GetClusterStatusResponse| {
        let recovery = status.recovery.as_ref();
        recovery.is_some_and(|recovery| recovery.end_time.is_none())
    };
    statuses.find(is_open).map(|_| {
        Finding::warning(
            "recovery",
            "the cluster recovers: hosts that have not reported yet get no new guest",
            "`berth cluster recovery status` shows what it waits for",
        )
    })
}
