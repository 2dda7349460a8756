//! `berth log-level`: which log lines programs write, changed at run time for a duration.
//!
//! Not here: what a filter may hold, and how a change ends. Each program decides that for itself.
//!
//! Invariant: every named program is called, whatever the others answer, and each that failed is reported.

use std::time::Duration;

use berth_domain::host::Host;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::version::TOO_OLD;
use berth_proto::client::{self, Dialer};
use berth_proto::cluster::v1::cluster_service_client::ClusterServiceClient;
use berth_proto::cluster::v1::{GetClusterStatusRequest, Member};
use berth_proto::convert::field;
use berth_proto::host::v1::GetHostRequest;
use berth_proto::host::v1::host_service_client::HostServiceClient;
use berth_proto::log::v1::log_service_client::LogServiceClient;
use berth_proto::log::v1::{
    GetLogLevelRequest, LogLevel, LogLevelChange, ResetLogLevelRequest, SetLogLevelRequest,
};
use berth_proto::status::{OUTCOME_UNKNOWN, from_status};
use berth_tls::Expected;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tonic::Status;
use tonic::transport::Channel;

use crate::arguments::{LogLevel as Verb, Programs};
use crate::cluster::registered;
use crate::output::Columns;
use crate::session::{STREAM_BROKEN, Session, resource, short};
use crate::usage::Usage;
use crate::{failure, output, read};

/// How long a program may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// The reason of a program that does not answer.
const UNREACHABLE: &str = "PROGRAM_UNREACHABLE";

/// What a program is called for.
#[derive(Clone, Debug)]
enum Call {
    Get,
    Set { filter: String, duration: Duration },
    Reset,
}

/// A program that is called.
struct Program {
    /// What it is, as `scheduler`.
    kind: &'static str,
    /// Which one, as the number of a member.
    name: String,
    address: String,
    /// Nothing where the recorded address is none.
    channel: Option<Channel>,
}

/// What a program answered.
struct Answer {
    kind: &'static str,
    name: String,
    address: String,
    outcome: Result<LogLevel, Refusal>,
}

/// The columns of the list.
pub(crate) const COLUMNS: Columns<6, 0> = Columns {
    usual: ["program", "name", "address", "log level", "ends in", "by"],
    wide: [],
};

/// Runs the command.
///
/// # Errors
///
/// Wrong usage, that a named program is not known, and the refusal of the first program that did not answer
/// as requested.
pub async fn run(session: &Session, verb: Verb) -> anyhow::Result<()> {
    let (programs, call) = match verb {
        Verb::Show { programs } => (programs.or_all(), Call::Get),
        Verb::Set {
            filter,
            duration,
            programs,
        } => (programs, Call::Set { filter, duration }),
        Verb::Reset { programs } => (programs.or_all(), Call::Reset),
    };
    if programs.is_empty() {
        let options = "--member, --all-members, --conductor, --all-conductors, --host or --address";
        return Err(Usage(format!("name the programs: {options}")).into());
    }
    match &call {
        Call::Get => session.check_running()?,
        Call::Set { .. } | Call::Reset => session.check_may_change()?,
    }
    let programs = resolve(session, programs).await?;
    let answers = call_all(programs, &call).await;
    print(session, &answers)?;
    finish(session, answers)
}

/// Returns the programs at their addresses.
async fn resolve(session: &Session, programs: Programs) -> anyhow::Result<Vec<Program>> {
    let Programs {
        members,
        all_members,
        conductors,
        all_conductors,
        hosts,
        addresses,
    } = programs;
    let mut resolved = Vec::new();
    for address in addresses {
        resolved.push(at_address(session, address)?);
    }
    if all_members || !members.is_empty() {
        resolved.extend(schedulers(session, &members, all_members).await?);
    }
    if all_conductors || !conductors.is_empty() {
        resolved.extend(of_conductors(session, &conductors, all_conductors).await?);
    }
    for host in hosts {
        resolved.push(agent(session, &host).await?);
    }
    Ok(resolved)
}

fn at_address(session: &Session, address: String) -> anyhow::Result<Program> {
    let invalid = || {
        Usage(format!(
            "{address:?} of --address is not HOST, HOST:PORT, http://HOST:PORT or unix:///PATH, with a port \
             from 1 to 65535"
        ))
    };
    let channel = match address.starts_with("unix:") {
        true => {
            berth_process::socket::path(&address).map_err(|_| invalid())?;
            Dialer::socket(&address).map_err(|_| invalid())?
        }
        false => session
            .channel(&session.url(&address), Expected::AnyServer)
            .map_err(|_| invalid())?,
    };
    Ok(Program {
        kind: "program",
        name: address.clone(),
        address,
        channel: Some(channel),
    })
}

async fn schedulers(session: &Session, ids: &[u64], all: bool) -> anyhow::Result<Vec<Program>> {
    let request = GetClusterStatusRequest {};
    let status = read!(session, ClusterServiceClient, get_cluster_status, request)?;
    for id in ids {
        if !status.members.iter().any(|member| member.id == *id) {
            let refusal = Refusal::not_found("member", id);
            return Err(refusal
                .with_hint("`berth cluster status` shows which there are")
                .into());
        }
    }
    let named = |member: &&Member| all || ids.contains(&member.id);
    let program = |member: &Member| {
        let url = session.url(&member.address);
        Program {
            kind: "scheduler",
            name: member.id.to_string(),
            address: member.address.clone(),
            channel: session.channel(&url, Expected::Scheduler).ok(),
        }
    };
    Ok(status.members.iter().filter(named).map(program).collect())
}

async fn of_conductors(
    session: &Session,
    names: &[String],
    all: bool,
) -> anyhow::Result<Vec<Program>> {
    let services = registered(session).await?;
    for name in names {
        if !services.iter().any(|s| short(&s.name) == short(name)) {
            let refusal = Refusal::not_found("conductor", name);
            return Err(refusal
                .with_hint("`berth cluster services` shows which there are")
                .into());
        }
    }
    let is_named = |name: &str| all || names.iter().any(|named| short(named) == name);
    let named = services.iter().filter(|s| is_named(short(&s.name)));
    let programs = named.map(|service| {
        let name = short(&service.name).to_owned();
        let expected = Expected::Conductor(Some(name.clone()));
        Program {
            kind: "conductor",
            name,
            address: service.address.clone(),
            channel: session.channel(&service.address, expected).ok(),
        }
    });
    Ok(programs.collect())
}

async fn agent(session: &Session, host: &str) -> anyhow::Result<Program> {
    let request = GetHostRequest {
        name: resource("hosts", host),
        ..GetHostRequest::default()
    };
    let response = read!(session, HostServiceClient, get_host, request)?;
    let host: Host = response.host.unwrap_or_default().try_into()?;
    let expected = Expected::Agent(host.name.to_string());
    Ok(Program {
        kind: "agent",
        name: host.name.to_string(),
        channel: session.channel(&host.report.agent_address, expected).ok(),
        address: host.report.agent_address,
    })
}

/// Calls all of them at once, and returns what they answered in their order.
async fn call_all(programs: Vec<Program>, call: &Call) -> Vec<Answer> {
    let mut calls = JoinSet::new();
    for (at, program) in programs.into_iter().enumerate() {
        let call = call.clone();
        calls.spawn(async move {
            let outcome = call_one(&program, call).await;
            let Program {
                kind,
                name,
                address,
                ..
            } = program;
            let answer = Answer {
                kind,
                name,
                address,
                outcome,
            };
            (at, answer)
        });
    }
    let mut answers = calls.join_all().await;
    answers.sort_by_key(|(at, _)| *at);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

async fn call_one(program: &Program, call: Call) -> Result<LogLevel, Refusal> {
    let Some(channel) = program.channel.clone() else {
        return Err(unreachable(program, "that is no address"));
    };
    let answered = tokio::time::timeout(PATIENCE, send(channel, call.clone())).await;
    match answered {
        Ok(Ok(level)) => Ok(level.unwrap_or_default()),
        Ok(Err(status)) => Err(refusal(program, &call, &status)),
        Err(_) => {
            let why = format!("no answer within {} s", PATIENCE.as_secs());
            Err(lost(program, &call, &why))
        }
    }
}

async fn send(channel: Channel, call: Call) -> Result<Option<LogLevel>, Status> {
    let mut client = LogServiceClient::new(channel);
    Ok(match call {
        Call::Get => {
            let response = client.get_log_level(GetLogLevelRequest {}).await?;
            response.into_inner().log_level
        }
        Call::Set { filter, duration } => {
            let ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
            let duration = Some(field::duration(ms));
            let request = SetLogLevelRequest { filter, duration };
            client.set_log_level(request).await?.into_inner().log_level
        }
        Call::Reset => {
            let response = client.reset_log_level(ResetLogLevelRequest {}).await?;
            response.into_inner().log_level
        }
    })
}

/// Returns why a program did not answer as requested.
fn refusal(program: &Program, call: &Call, status: &Status) -> Refusal {
    if client::is_unanswered(status) {
        let cause = std::error::Error::source(status).map(client::cause_of);
        let cause = cause.unwrap_or_else(|| from_status(status).message);
        return match client::is_unsent(status) {
            true => unreachable(program, &cause),
            false => lost(program, call, &cause),
        };
    }
    let what = program.describe();
    if status.code() == tonic::Code::Unimplemented {
        let message = format!("{what} is too old to change its log level at run time");
        return Refusal::new(Code::FailedPrecondition, TOO_OLD, message).with_hint("upgrade it");
    }
    let refusal = from_status(status);
    Refusal {
        message: format!("{what}: {}", refusal.message),
        ..refusal
    }
}

impl Program {
    /// Returns what it is, and where.
    fn describe(&self) -> String {
        let Self {
            kind,
            name,
            address,
            ..
        } = self;
        match name == address {
            true => format!("the program at {address}"),
            false => format!("{kind} {name} at {address}"),
        }
    }
}

fn unreachable(program: &Program, why: &str) -> Refusal {
    let message = format!("{} is not reached: {why}", program.describe());
    Refusal::new(Code::Unavailable, UNREACHABLE, message)
}

/// Returns that a program was lost after the request was sent.
fn lost(program: &Program, call: &Call, why: &str) -> Refusal {
    let what = program.describe();
    match call {
        Call::Get => {
            let message = format!("{what} does not answer: {why}");
            Refusal::new(Code::Unavailable, STREAM_BROKEN, message)
        }
        Call::Set { .. } | Call::Reset => {
            let message =
                format!("{what} was lost before it answered, and may have done so: {why}");
            Refusal::new(Code::Unavailable, OUTCOME_UNKNOWN, message).with_hint(
                "`berth log-level show` shows what is in force; the command can be repeated",
            )
        }
    }
}

fn print(session: &Session, answers: &[Answer]) -> anyhow::Result<()> {
    if session.for_programs() {
        return output::value(&answers.iter().map(to_json).collect::<Vec<_>>());
    }
    let rows = answers.iter().map(|answer| (row(answer), [])).collect();
    output::list(&COLUMNS, rows, "no program is registered")
}

fn row(answer: &Answer) -> [String; 6] {
    let (level, ends, by) = match &answer.outcome {
        Ok(level) => describe(level),
        Err(_) => ("unknown".to_owned(), "-".to_owned(), "-".to_owned()),
    };
    let (kind, name) = (answer.kind.to_owned(), answer.name.clone());
    [kind, name, answer.address.clone(), level, ends, by]
}

/// Returns the filter in force, when its change ends, and which principal requested that.
fn describe(level: &LogLevel) -> (String, String, String) {
    let configured = level.configured_filter.clone();
    match &level.change {
        None => (configured, "-".to_owned(), "-".to_owned()),
        Some(change) => {
            let seconds = remaining_ms(change).map(|ms| format!("{} s", ms.div_ceil(1000)));
            let ends = seconds.unwrap_or_else(|| "-".to_owned());
            let filter = format!("{configured},{}", change.filter);
            (filter, ends, change.principal.clone())
        }
    }
}

fn remaining_ms(change: &LogLevelChange) -> Option<u64> {
    field::optional_duration_ms(change.remaining, "remaining").ok()?
}

fn to_json(answer: &Answer) -> Value {
    let mut value = json!({
        "program": answer.kind, "name": answer.name, "address": answer.address,
    });
    match &answer.outcome {
        Ok(level) => {
            value["configured_filter"] = json!(level.configured_filter);
            value["change"] = level.change.as_ref().map_or(Value::Null, |change| {
                json!({"filter": change.filter, "principal": change.principal,
                       "remaining_ms": remaining_ms(change)})
            });
        }
        Err(refusal) => {
            value["error"] = json!({"reason": refusal.reason, "message": refusal.message});
        }
    }
    value
}

/// Has the command fail with the first refusal, after the others were reported.
fn finish(session: &Session, answers: Vec<Answer>) -> anyhow::Result<()> {
    let count = answers.len();
    let mut refusals: Vec<Refusal> = answers
        .into_iter()
        .filter_map(|answer| answer.outcome.err())
        .collect();
    let is_partial = refusals.len() < count;
    if refusals.is_empty() {
        return Ok(());
    }
    let first = refusals.remove(0);
    if !session.for_programs() {
        for refusal in &refusals {
            output::message(output::refusal(refusal));
        }
    }
    match is_partial {
        true => Err(failure::failed(first)),
        false => Err(first.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_shown_behind_the_configured_filter() {
        let change = LogLevelChange {
            filter: "h2=debug".to_owned(),
            principal: "operator:ann".to_owned(),
            remaining: Some(field::duration(59_001)),
        };
        let level = |change| LogLevel {
            configured_filter: "info".to_owned(),
            change,
        };
        let text = |(level, ends, by): (String, String, String)| format!("{level} {ends} {by}");
        let changed = level(Some(change));
        assert_eq!(text(describe(&changed)), "info,h2=debug 60 s operator:ann");
        assert_eq!(text(describe(&level(None))), "info - -");
    }
}
