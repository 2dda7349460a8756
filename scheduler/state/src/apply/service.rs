//! Conductors that register themselves.

use berth_domain::refusal::Refusal;
use berth_domain::service::Service;

use crate::reply::Reply;
use crate::transaction::{Journal, Transaction};

impl<J: Journal> Transaction<'_, J> {
    pub(super) fn register_service(&mut self, service: &Service) -> Result<Reply, Refusal> {
        let service = Service {
            registered_at: self.now(),
            ..service.clone()
        };
        Ok(Reply::Service(self.put_service(service)))
    }
}
