//! `berth.placement.v1.ImportService`.

use berth_domain::import::{ConsumerImport, ProviderImport};
use berth_proto::convert::field;
use berth_proto::convert::import::read_source;
use berth_proto::placement::v1;
use berth_proto::placement::v1::import_service_server::ImportService;
use berth_state::command::Command;
use tonic::{Request, Response, Status};

use super::context::Context;
use super::keyed::open;

/// The most providers or consumers that are taken over at once.
const AT_ONCE_MAX: usize = 1000;

/// Serves `ImportService`.
pub(crate) struct ImportApi(pub(crate) Context);

#[tonic::async_trait]
impl ImportService for ImportApi {
    async fn import_resource_providers(
        &self,
        request: Request<v1::ImportResourceProvidersRequest>,
    ) -> Result<Response<v1::ImportResourceProvidersResponse>, Status> {
        let (wire, caller) = open(request)?;
        let source = read_source(wire.source)?;
        let providers: Vec<ProviderImport> = field::each(wire.providers, "providers", AT_ONCE_MAX)?;
        let command = Command::ImportProviders { source, providers };
        self.0.command(caller, command).await?;
        Ok(Response::new(v1::ImportResourceProvidersResponse {}))
    }

    async fn import_consumers(
        &self,
        request: Request<v1::ImportConsumersRequest>,
    ) -> Result<Response<v1::ImportConsumersResponse>, Status> {
        let (wire, caller) = open(request)?;
        let source = read_source(wire.source)?;
        let consumers: Vec<ConsumerImport> = field::each(wire.consumers, "consumers", AT_ONCE_MAX)?;
        let command = Command::ImportConsumers { source, consumers };
        self.0.command(caller, command).await?;
        Ok(Response::new(v1::ImportConsumersResponse {}))
    }
}
