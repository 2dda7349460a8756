//! The volumes, in pages that are stable: in order of their ids, which never change.

use berth_proto::convert::Invalid;
use berth_proto::csi::v1::list_volumes_response::Entry;
use berth_proto::csi::v1::{ListVolumesRequest, ListVolumesResponse};
use berth_proto::volume::v1 as wire;
use tonic::{Code, Status};

use super::ControllerApi;
use super::look::is_going;

/// The default page size.
const PAGE: i32 = 1000;

impl ControllerApi {
    pub(super) async fn list(
        &self,
        request: ListVolumesRequest,
    ) -> Result<ListVolumesResponse, Status> {
        if request.max_entries < 0 {
            return Err(Invalid::new("max_entries", "is negative").into());
        }
        let most = match request.max_entries {
            0 => PAGE,
            most => most.min(PAGE),
        };
        let mut token = request.starting_token;
        loop {
            let page = wire::ListVolumesRequest {
                page_size: most,
                page_token: token,
                ..wire::ListVolumesRequest::default()
            };
            let page = self.calls.list(page).await.map_err(odd_token)?;
            let there = page.volumes.iter().filter(|volume| !is_going(volume));
            let entries = there.map(|volume| {
                Ok(Entry {
                    volume: Some(self.shown(volume)?),
                    status: None,
                })
            });
            let entries = entries.collect::<Result<Vec<_>, Status>>()?;
            // An empty page would be taken for the end by some.
            if !entries.is_empty() || page.next_page_token.is_empty() {
                return Ok(ListVolumesResponse {
                    entries,
                    next_token: page.next_page_token,
                });
            }
            token = page.next_page_token;
        }
    }
}

/// Nothing but the token can be wrong, and a token that is not ours has a code of its own.
fn odd_token(refused: Status) -> Status {
    match refused.code() == Code::InvalidArgument {
        true => Status::aborted(refused.message()),
        false => refused,
    }
}
