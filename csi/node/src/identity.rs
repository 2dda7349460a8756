//! What the driver is called, and what it can do.

use berth_proto::convert::csi::identity;
use berth_proto::csi::v1::identity_server::Identity;
use berth_proto::csi::v1::{
    GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest,
    GetPluginInfoResponse, ProbeRequest, ProbeResponse,
};
use tonic::{Request, Response, Status};

/// The service.
#[derive(Clone, Debug)]
pub struct IdentityApi {
    driver: String,
}

impl IdentityApi {
    /// Returns the service of the driver of that name.
    #[must_use]
    pub fn new(driver: &str) -> Self {
        Self {
            driver: driver.to_owned(),
        }
    }
}

#[tonic::async_trait]
impl Identity for IdentityApi {
    async fn get_plugin_info(
        &self,
        _: Request<GetPluginInfoRequest>,
    ) -> Result<Response<GetPluginInfoResponse>, Status> {
        Ok(Response::new(identity::information(&self.driver)))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<GetPluginCapabilitiesRequest>,
    ) -> Result<Response<GetPluginCapabilitiesResponse>, Status> {
        Ok(Response::new(identity::abilities()))
    }

    async fn probe(&self, _: Request<ProbeRequest>) -> Result<Response<ProbeResponse>, Status> {
        Ok(Response::new(identity::ready()))
    }
}
