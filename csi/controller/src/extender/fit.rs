//! Queries Berth's scheduler which hosts fit, of all candidates in one call.
//!
//! The name of a node is the name of its host.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use berth_domain::name::HostName;
use berth_proto::client::SchedulerChannel;
use berth_proto::status::from_status;
use berth_proto::types::v1::ReadConsistency;
use berth_proto::volume::v1::volume_service_client::VolumeServiceClient;
use berth_proto::volume::v1::{FitVolumesRequest, VolumeFit};

/// Why a node does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unfit {
    pub(crate) why: String,
}

static UNHEARD: LazyLock<Unfit> = LazyLock::new(|| Unfit {
    why: "the scheduler's answer lacks this node".to_owned(),
});

impl Unfit {
    /// Returns the verdict on a node that the answer lacks.
    pub(super) fn unanswered() -> &'static Self {
        &UNHEARD
    }
}

/// Returns of each node how well volumes of these sizes fit there together, or why they do not.
pub(super) async fn query(
    scheduler: &SchedulerChannel,
    nodes: &[&str],
    sizes: Vec<u64>,
) -> Result<BTreeMap<String, Result<u32, Unfit>>, String> {
    let mut fits = BTreeMap::new();
    let mut hosts = Vec::with_capacity(nodes.len());
    for node in nodes {
        match HostName::new(node) {
            Ok(_) => hosts.push(format!("hosts/{node}")),
            Err(_) => {
                let why = "no host of Berth can have the name of this node".to_owned();
                fits.insert((*node).to_owned(), Err(Unfit { why }));
            }
        }
    }
    if hosts.is_empty() {
        // An empty list would mean all hosts.
        return Ok(fits);
    }
    let request = FitVolumesRequest {
        hosts,
        required_bytes: sizes,
        consistency: ReadConsistency::Linearizable.into(),
    };
    let call = |channel| {
        let request = request.clone();
        async move {
            let client = VolumeServiceClient::new(channel);
            let mut client = client.max_decoding_message_size(ANSWER_BYTES_MAX);
            client.fit_volumes(request).await
        }
    };
    let answer = scheduler.call(call).await;
    let answer = answer.map_err(|status| from_status(&status).message)?;
    fits.extend(answer.hosts.into_iter().filter_map(verdict));
    Ok(fits)
}

/// Ten thousand hosts with a long sentence each.
const ANSWER_BYTES_MAX: usize = 16 << 20;

fn verdict(fit: VolumeFit) -> Option<(String, Result<u32, Unfit>)> {
    let node = fit.host.strip_prefix("hosts/")?.to_owned();
    let verdict = match (fit.fits, fit.reason) {
        (true, _) => Ok(fit.score),
        (false, why) if why.is_empty() => Err(Unfit {
            why: "its persistent memory has too little free space".to_owned(),
        }),
        (false, why) => Err(Unfit { why }),
    };
    Some((node, verdict))
}
