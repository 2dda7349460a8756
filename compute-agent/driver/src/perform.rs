//! Carries a [`Request`] out: one call of a [`Driver`].

use crate::driver::Driver;
use crate::error::Error;
use crate::request::{Answer, Request};

/// Makes the call that `request` stands for; blocks as long as it does.
///
/// # Errors
///
/// Those of the call.
pub fn perform(driver: &dyn Driver, request: &Request) -> Result<Answer, Error> {
    let done = |()| Answer::Done;
    match request {
        Request::Create(domain) => driver.create(domain).map(done),
        Request::Destroy(vm) => driver.destroy(*vm).map(done),
        Request::Domain(vm) => driver.domain(*vm).map(Answer::Status),
        Request::Domains => driver.domains().map(Answer::Domains),
        Request::Prepare { domain, copies } => driver.prepare_incoming(domain, copies).map(done),
        Request::Cancel(vm) => driver.cancel_incoming(*vm).map(done),
        Request::CheckTls(_) => driver.check_tls().map(done),
        Request::CheckPeer(_, uri) => driver.check_peer(uri).map(done),
        Request::Migrate {
            vm,
            destination_uri,
            destination,
            sending,
        } => driver
            .migrate(*vm, destination_uri, destination, sending)
            .map(done),
        Request::Abort(vm) => driver.abort(*vm).map(done),
        Request::Release(vm) => driver.release(*vm).map(done),
        Request::FreePages => driver.free_pages().map(Answer::FreePages),
        Request::Shutdown(vm) => driver.shutdown(*vm).map(done),
        Request::Stop(vm) => driver.stop(*vm).map(done),
        Request::Start(domain) => driver.start(domain).map(done),
        Request::Force(vm, how) => driver.force_complete(*vm, *how).map(done),
        Request::Forget(vm) => driver.forget_incoming(*vm).map(done),
        Request::MakeDisks(domain) => driver.make_disks(domain).map(done),
        Request::CopyDisk {
            domain,
            disk,
            draft,
        } => driver.copy_disk(domain, *disk, draft).map(done),
        Request::PublishImage(draft) => driver.publish_image(draft).map(done),
        Request::DropImage(draft) => {
            let dropped = driver.drop_image(draft);
            dropped.map(|published| Answer::Image { published })
        }
        Request::Everything => {
            let known = driver.domains()?;
            Ok(Answer::Everything(known, driver.others()?))
        }
        Request::Evict(vm, claim) => driver.evict(*vm, *claim).map(done),
        Request::Erase(devices) => {
            let mut erased = devices.iter().map(|device| driver.erase(device));
            erased.try_for_each(|erased| erased).map(done)
        }
        Request::FetchDisks(_) | Request::StopFetch(_) => Err(Error::refused(
            "disks are fetched by agents, not by drivers",
        )),
        Request::DropDisks(vm, migration, side) => {
            driver.drop_disks(*vm, *migration, *side).map(done)
        }
    }
}
