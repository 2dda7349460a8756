//! `berth cpu`: what the CPUs of hosts have in common.

use berth_domain::cpu_model::GuestCpu;
use berth_domain::refusal::Refusal;
use berth_proto::host::v1::host_service_client::HostServiceClient;
use berth_proto::host::v1::{GetCpuBaselineRequest, GetCpuBaselineResponse};
use serde_json::json;

use crate::arguments::{Cpu as Verb, CpuGroup};
use crate::output::Columns;
use crate::session::{Session, resource, short};
use crate::{output, read};

/// The columns of the hosts of a baseline.
const HOSTS: [&str; 4] = ["host", "vendor", "cpu model", "lost"];

/// The columns of the list of models.
pub(crate) const MODELS: Columns<3, 0> = Columns {
    usual: ["cpu model", "hosts", "missing"],
    wide: [],
};

/// How many features a cell names.
const NAMED_MAX: usize = 8;

/// Runs the command.
///
/// # Errors
///
/// The scheduler's refusal.
pub async fn run(session: &Session, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::Baseline(group) => baseline(session, &get(session, group).await?),
        Verb::Models(group) => models(session, &get(session, group).await?),
    }
}

async fn get(session: &Session, group: CpuGroup) -> anyhow::Result<GetCpuBaselineResponse> {
    let request = GetCpuBaselineRequest {
        aggregate: (group.group.as_deref())
            .map(|name| resource("aggregates", name))
            .unwrap_or_default(),
        ..Default::default()
    };
    Ok(read!(
        session,
        HostServiceClient,
        get_cpu_baseline,
        request
    )?)
}

fn baseline(session: &Session, response: &GetCpuBaselineResponse) -> anyhow::Result<()> {
    let cpu: Option<GuestCpu> = response.cpu.clone().map(TryInto::try_into).transpose()?;
    let fault = response.fault.clone().map(Refusal::try_from).transpose()?;
    if session.for_programs() {
        let host = |loss: &berth_proto::host::v1::HostCpuLoss| {
            let own: GuestCpu = loss.host_model.clone().unwrap_or_default().try_into()?;
            Ok(json!({
                "host": short(&loss.host),
                "cpu_model": own.model,
                "lost": loss.lost_features,
                "cpu": own,
            }))
        };
        let hosts: anyhow::Result<Vec<_>> = response.hosts.iter().map(host).collect();
        return output::value(&json!({
            "cpu": cpu,
            "features": response.features,
            "fault": fault,
            "hosts": hosts?,
            "unreported_count": response.unreported_count,
        }));
    }
    let mut rows = Vec::new();
    for loss in &response.hosts {
        let own: GuestCpu = loss.host_model.clone().unwrap_or_default().try_into()?;
        let lost = match cpu.is_some() {
            true => few(&loss.lost_features),
            false => "-".to_owned(),
        };
        rows.push([
            short(&loss.host).to_owned(),
            output::or_dash(own.vendor.as_ref()),
            own.model.to_string(),
            lost,
        ]);
    }
    output::table(HOSTS, rows, "no host of the group reports its CPU");
    match (cpu, fault) {
        (Some(cpu), _) => output::message(format!("the baseline is {cpu}")),
        (None, Some(fault)) => {
            output::message(format!("there is no baseline: {}", fault.message));
            if let Some(hint) = &fault.hint {
                output::message(format!("hint: {hint}"));
            }
        }
        (None, None) => {}
    }
    if response.unreported_count > 0 {
        let count = response.unreported_count;
        let plural = if count == 1 { " does" } else { "s do" };
        output::message(format!(
            "{count} host{plural} not report a CPU, and count for nothing here"
        ));
    }
    Ok(())
}

fn models(session: &Session, response: &GetCpuBaselineResponse) -> anyhow::Result<()> {
    let all = response.hosts.len();
    if session.for_programs() {
        let values = response.models.iter().map(|model| {
            json!({
                "cpu_model": model.model,
                "hosts": model.host_count,
                "missing": model.missing_features,
            })
        });
        return output::value(&values.collect::<Vec<_>>());
    }
    let row = |model: &berth_proto::host::v1::CpuModelSupport| {
        let hosts = format!("{} of {all}", model.host_count);
        (
            [model.model.clone(), hosts, few(&model.missing_features)],
            [],
        )
    };
    let rows = response.models.iter().map(row).collect();
    output::list(&MODELS, rows, "no host of the group reports its CPU")
}

/// Returns the first features, and how many others there are.
fn few(features: &[String]) -> String {
    let first = features.iter().take(NAMED_MAX).cloned();
    let first = first.collect::<Vec<_>>().join(" ");
    match features.len() {
        0 => "-".to_owned(),
        count if count <= NAMED_MAX => first,
        count => format!("{first} and {} more", count - NAMED_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_of_features_are_cut_with_their_count() {
        let names = |count: usize| (0..count).map(|n| format!("f{n}")).collect::<Vec<_>>();
        assert_eq!(few(&names(0)), "-");
        assert_eq!(few(&names(2)), "f0 f1");
        assert_eq!(few(&names(8)), "f0 f1 f2 f3 f4 f5 f6 f7");
        assert!(few(&names(11)).ends_with("f7 and 3 more"));
    }
}
