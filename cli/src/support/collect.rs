//! What a bundle is made of: the responses of the schedulers, without what may not leave the cluster.
//!
//! Not here: which calls are made (`calls`), and the file (`support`).
//!
//! Invariant: what cannot be had is named with the reason, and the rest is collected all the same.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use berth_domain::refusal::Refusal;
use berth_proto::cluster::v1::cluster_service_client::ClusterServiceClient;
use berth_proto::cluster::v1::{
    BackupRequest, GetClusterStatusRequest, GetDiagnosticsRequest, GetDiagnosticsResponse, Member,
};
use berth_proto::consistency::ReadChannel;
use prost::Message as _;
use prost_reflect::{DynamicMessage, MessageDescriptor, Value as Field};
use serde_json::Value;
use tonic::transport::Channel;

use super::calls::{Amount, CALLS, DIAGNOSTICS, STATUS};
use super::manifest::Missing;
use super::messages::{self, Method};
use super::redact::{REMOVED, Redactor};
use super::wire;
use crate::arguments::SupportBundle;
use crate::session::{Session, ended};
use crate::{audit, call, read};

/// The largest page that a scheduler returns.
const PAGE_MAX: u32 = 1000;

/// Words behind which a line of a log is cut: no program of Berth logs such a value, a library might.
const SECRETS: [&str; 6] = [
    "-----BEGIN",
    "Bearer ",
    "bearer ",
    "password=",
    "token=",
    "secret=",
];

/// What was collected.
#[derive(Debug, Default)]
pub(super) struct Collected {
    /// The cluster.
    pub(super) cluster_id: String,
    /// The files by their names.
    pub(super) files: BTreeMap<String, Vec<u8>>,
    /// What could not be had.
    pub(super) missing: Vec<Missing>,
}

impl Collected {
    fn add_json(&mut self, name: String, value: &Value) -> anyhow::Result<()> {
        self.files.insert(name, serde_json::to_vec_pretty(value)?);
        Ok(())
    }

    fn miss(&mut self, what: impl Into<String>, why: impl Into<String>) {
        let (what, why) = (what.into(), why.into());
        self.missing.push(Missing { what, why });
    }
}

/// Returns the name of the file with the response of a method.
pub(super) fn file_of(path: &str) -> String {
    let method = path.trim_start_matches('/').replace('/', ".");
    format!("responses/{method}.json")
}

/// Collects everything but the state.
///
/// # Errors
///
/// No scheduler answers at all, or the time is none.
pub(super) async fn collect(
    session: &Session,
    args: &SupportBundle,
    redactor: &Redactor,
) -> anyhow::Result<Collected> {
    let log_since = Some(audit::since(&args.since)?);
    let request = GetClusterStatusRequest {};
    let status = read!(session, ClusterServiceClient, get_cluster_status, request)?;
    let mut collected = Collected {
        cluster_id: status.cluster_id,
        ..Collected::default()
    };
    for (path, amount) in CALLS {
        match recorded(session, path, amount, args.operations, redactor).await {
            Ok(response) => collected.add_json(file_of(path), &response)?,
            Err(error) => collected.miss(path.trim_start_matches('/'), why(&error, redactor)),
        }
    }
    if !session.knows_liveness() {
        let why =
            "there is none; the responses are of one scheduler's own state, and may be behind";
        collected.miss("responses of a leader", why);
    }
    if redactor.hashes_names() {
        collected.miss("log lines", "they hold names, which are hashed");
    }
    let request = GetDiagnosticsRequest { log_since };
    for member in &status.members {
        of_member(session, member, &request, redactor, &mut collected).await?;
    }
    if !args.with_state {
        collected.miss("the state", "it was not requested with --with-state");
    }
    Ok(collected)
}

/// Returns why something is missing; a message may hold names, a reason holds none.
fn why(error: &anyhow::Error, redactor: &Redactor) -> String {
    if !redactor.hashes_names() {
        return format!("{error:#}");
    }
    let refusal = error.downcast_ref::<Refusal>();
    refusal.map_or_else(|| REMOVED.to_owned(), |refusal| refusal.reason.clone())
}

/// Adds what a member states of itself.
async fn of_member(
    session: &Session,
    member: &Member,
    request: &GetDiagnosticsRequest,
    redactor: &Redactor,
    collected: &mut Collected,
) -> anyhow::Result<()> {
    let id = member.id;
    let address = session.url(&member.address);
    let get_status = |channel: Channel| async move { wire::call!(channel, STATUS, Vec::new()) };
    match session.only(&address, get_status).await {
        Some(status) => {
            let response = redacted(&output_of(STATUS), &status, redactor)?;
            collected.add_json(format!("members/{id}/status.json"), &response)?;
        }
        None => {
            collected.miss(format!("member {id}"), "it does not answer");
            return Ok(());
        }
    }
    let request = request.encode_to_vec();
    let get = |channel: Channel| async move { wire::call!(channel, DIAGNOSTICS, request) };
    let Some(diagnostics) = session.only(&address, get).await else {
        let why = "it does not state them: an operator's certificate is needed, and a scheduler of this version";
        collected.miss(format!("configuration and log lines of member {id}"), why);
        return Ok(());
    };
    let mut diagnostics = GetDiagnosticsResponse::decode(&*diagnostics)?;
    let lines = std::mem::take(&mut diagnostics.log_lines);
    let response = redacted(
        &output_of(DIAGNOSTICS),
        &diagnostics.encode_to_vec(),
        redactor,
    )?;
    collected.add_json(format!("members/{id}/configuration.json"), &response)?;
    if !redactor.hashes_names() {
        let mut log = String::new();
        for line in lines {
            let _ = writeln!(log, "{}", without_secrets(&line.text));
        }
        collected
            .files
            .insert(format!("members/{id}/log.txt"), log.into_bytes());
    }
    Ok(())
}

/// Returns a line up to what looks like the beginning of a secret.
fn without_secrets(line: &str) -> String {
    let begins = SECRETS
        .iter()
        .filter_map(|word| Some(line.find(word)? + word.len()));
    match begins.min() {
        Some(begin) => format!("{}{REMOVED}", &line[..begin]),
        None => line.to_owned(),
    }
}

fn output_of(path: &str) -> MessageDescriptor {
    messages::method(path)
        .expect("a method of this build")
        .output
}

fn redacted(kind: &MessageDescriptor, bytes: &[u8], redactor: &Redactor) -> anyhow::Result<Value> {
    let mut message = messages::decode(kind, bytes)?;
    redactor.redact(&mut message);
    messages::to_json(&message)
}

/// Makes a call and returns its response, the pages of a list as one.
async fn recorded(
    session: &Session,
    path: &'static str,
    amount: Amount,
    operations: u32,
    redactor: &Redactor,
) -> anyhow::Result<Value> {
    let method = messages::method(path).expect("a method of this build");
    let size = match amount {
        Amount::Page => operations.clamp(1, PAGE_MAX),
        Amount::Whole | Amount::LastOperations => PAGE_MAX,
    };
    let mut all = Value::Null;
    let mut token = String::new();
    loop {
        let request = messages::encode(&page(&method, size, &token));
        let response = session
            .read(|channel: ReadChannel| {
                let request = request.clone();
                async move { wire::call!(channel, path, request) }
            })
            .await?;
        let mut response = redacted(&method.output, &response, redactor)?;
        token = take_token(&mut response);
        append(&mut all, response, &list_of(&method));
        if token.is_empty() || amount == Amount::Page {
            break;
        }
    }
    if amount == Amount::LastOperations {
        keep_last(&mut all[list_of(&method)], operations);
    }
    Ok(all)
}

/// Returns the request of a page; of a method without pages an empty one.
fn page(method: &Method, size: u32, token: &str) -> DynamicMessage {
    let mut request = DynamicMessage::new(method.input.clone());
    if method.input.get_field_by_name("page_token").is_some() {
        let size = i32::try_from(size).unwrap_or(i32::MAX);
        request.set_field_by_name("page_size", Field::I32(size));
        request.set_field_by_name("page_token", Field::String(token.to_owned()));
    }
    request
}

/// Returns the name of the field with the elements of a list.
fn list_of(method: &Method) -> String {
    let mut fields = method.output.fields();
    let list = fields.find(|field| field.is_list());
    list.map_or_else(String::new, |field| field.name().to_owned())
}

fn take_token(response: &mut Value) -> String {
    let fields = response.as_object_mut();
    let token = fields.and_then(|fields| fields.remove("next_page_token"));
    token
        .and_then(|token| Some(token.as_str()?.to_owned()))
        .unwrap_or_default()
}

/// Adds the elements of a page to those before it.
fn append(all: &mut Value, mut page: Value, list: &str) {
    if all.is_null() {
        *all = page;
        return;
    }
    let Value::Array(further) = page[list].take() else {
        return;
    };
    if let Some(elements) = all[list].as_array_mut() {
        elements.extend(further);
    } else {
        // The pages before it had none.
        all[list] = Value::Array(further);
    }
}

/// Keeps the operations that were requested last.
fn keep_last(operations: &mut Value, count: u32) {
    let Value::Array(all) = operations else {
        return;
    };
    // Times in JSON have one form, so that their texts are in the order of the times.
    let created = |operation: &Value| operation["create_time"].as_str().map(str::to_owned);
    all.sort_by_key(|operation| std::cmp::Reverse(created(operation)));
    all.truncate(usize::try_from(count).unwrap_or(usize::MAX));
}

/// Returns a backup of the scheduler that is reached first.
///
/// # Errors
///
/// Its refusal.
pub(super) async fn backup(session: &Session) -> Result<Vec<u8>, Refusal> {
    let request = BackupRequest { after: None };
    let mut stream = call!(any: session, ClusterServiceClient, backup, request)?;
    let mut file = Vec::new();
    loop {
        match stream.message().await {
            Ok(Some(part)) => file.extend_from_slice(&part.data),
            Ok(None) => return Ok(file),
            Err(status) => return Err(ended(&status)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pages_become_one_list() {
        let mut all = Value::Null;
        let mut first = json!({"hosts": [1], "next_page_token": "t", "revision": "7"});
        assert_eq!(take_token(&mut first), "t");
        append(&mut all, first, "hosts");
        append(&mut all, json!({"hosts": [2, 3]}), "hosts");
        append(&mut all, json!({}), "hosts");
        assert_eq!(all, json!({"hosts": [1, 2, 3], "revision": "7"}));
    }

    #[test]
    fn the_last_operations_are_kept() {
        let of = |second| json!({"create_time": format!("2026-11-28T10:00:0{second}Z")});
        let mut all = json!([of(2), of(5), of(1)]);
        keep_last(&mut all, 2);
        assert_eq!(all, json!([of(5), of(2)]));
    }

    #[test]
    fn what_looks_like_a_secret_is_cut() {
        let cut = without_secrets("INFO call authorization=Bearer abc.def x");
        assert_eq!(cut, "INFO call authorization=Bearer (removed)");
        assert_eq!(without_secrets("INFO serving"), "INFO serving");
    }
}
