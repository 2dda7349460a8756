//! The conductors, called for the person who uses the page: `berth-on-behalf-of: operator:NAME`.
//!
//! Invariant: what a conductor carries out for the page, it carries out under the rights of that person.

use berth_domain::refusal::{Code, Refusal};
use berth_process::access::{self, UNVERIFIED};
use berth_proto::client::conductor;
use berth_proto::cluster::v1 as cluster;
use berth_proto::cluster::v1::cluster_service_server::ClusterService as _;
use berth_proto::conductor::v1 as wire;
use berth_proto::conductor::v1::conductor_service_client::ConductorServiceClient;
use berth_proto::for_cluster::{ForCluster, MemberChannel};
use berth_proto::status::to_status;
use berth_tls::Peer;
use tokio::task::JoinSet;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::{Request, Status};

use crate::service::{ClusterApi, Context, of_own_state};

/// A client of a conductor.
pub(super) type Client = ConductorServiceClient<MemberChannel>;

/// The conductors for a caller.
pub(super) struct Conductors<'a> {
    context: &'a Context,
    /// The caller, as the audit names it.
    principal: String,
}

impl<'a> Conductors<'a> {
    /// Returns them for a caller.
    pub(super) fn for_caller(context: &'a Context, peer: Option<&Peer>) -> Self {
        let identity = peer.and_then(|peer| peer.identity.as_ref());
        Self {
            context,
            principal: identity.map_or_else(|| UNVERIFIED.to_owned(), |who| who.principal()),
        }
    }

    /// Returns the caller, as the audit names it.
    pub(super) fn principal(&self) -> &str {
        &self.principal
    }

    /// Returns a request for a conductor, on behalf of the caller.
    pub(super) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let principal: Option<MetadataValue<Ascii>> = self.principal.parse().ok();
        if let Some(principal) = principal.filter(|_| self.principal != UNVERIFIED) {
            let metadata = request.metadata_mut();
            metadata.insert(access::ON_BEHALF_OF, principal);
        }
        request
    }

    /// Returns a client of the registered conductor that answers first and works for this cluster.
    ///
    /// # Errors
    ///
    /// Why none of them can be called.
    pub(super) async fn connect(&self) -> Result<Client, Status> {
        let api = ClusterApi(self.context.clone());
        let request = Request::new(cluster::ListServicesRequest::default());
        let (listed, _) = of_own_state(self.context, api.list_services(request)).await;
        let for_cluster = ForCluster::of(self.context.cluster_id());
        // One that hangs delays none that works.
        let mut tries = JoinSet::new();
        for service in listed?.into_inner().services {
            let dialer = self.context.dialer().clone();
            let for_cluster = for_cluster.clone();
            let request = self.request(wire::GetServiceInfoRequest {});
            tries.spawn(async move {
                let failed = |why: String| format!("{} ({why})", service.address);
                let channel = conductor::connect(&dialer, &service, &for_cluster).await;
                let channel = channel.map_err(failed)?;
                let checked = conductor::check(&channel, request).await;
                checked.map_err(|refusal| failed(refusal.message))?;
                Ok::<_, String>(channel)
            });
        }
        let mut tried = Vec::new();
        while let Some(ended) = tries.join_next().await {
            match ended {
                Ok(Ok(channel)) => return Ok(ConductorServiceClient::new(channel)),
                Ok(Err(why)) => tried.push(why),
                Err(_) => {}
            }
        }
        let message = match tried.is_empty() {
            true => "no conductor has registered".to_owned(),
            false => format!("no conductor can carry it out: {}", tried.join(", ")),
        };
        let refusal = Refusal::new(Code::Unavailable, conductor::UNREACHABLE, message);
        Err(to_status(&refusal.with_hint(
            "start one: berth-conductor --scheduler ADDRESS",
        )))
    }
}
