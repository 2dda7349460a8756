//! From a directory to a member: opening what is there, or beginning as a new one.
//!
//! Invariant: a directory that holds a member is never initialized again, and an empty one never taken
//! for a member.

use std::path::Path;

use berth_domain::version::ServiceVersion;
use berth_proto::client::Dialer;
use berth_replication::runtime::{OpenError, Runtime, Settings, Start as RuntimeStart};
use berth_store::{FileDisk, Identity, disk, identity, space};
use uuid::Uuid;

use crate::config::{Config, Start};
use crate::error::Error;
use crate::join;
use crate::machine::{Level, Machine};

/// The number of the member that a new cluster begins with.
const FIRST_MEMBER: u64 = 1;

const OPENING: &str = "the task that opens the data directory";

/// Opens the member of `config.data_dir`, or makes it. `advertise` is where others dial it.
pub(crate) async fn open(
    config: &Config,
    settings: Settings,
    advertise: &str,
    dialer: &Dialer,
) -> Result<Runtime<Machine, FileDisk>, Error> {
    let found = blocking({
        let path = config.data_dir.clone();
        move || look(&path)
    })
    .await?;
    let (disk, start) = match (found, &config.start) {
        (Some(identity), start) => {
            existing(config, &identity, start, dialer).await?;
            let interrupted = *start == Start::Bootstrap;
            let path = config.data_dir.clone();
            let disk = blocking(move || Ok(FileDisk::open(&path)?)).await?;
            // A new cluster whose first start was interrupted has no state yet.
            let start = match interrupted {
                true => RuntimeStart::Bootstrap {
                    address: advertise.to_owned(),
                },
                false => RuntimeStart::Existing,
            };
            (disk, start)
        }
        (None, Start::Restart) => {
            return Err(Error::NoMember {
                path: config.data_dir.clone(),
            });
        }
        (None, Start::Bootstrap) => {
            let path = config.data_dir.clone();
            blocking(move || prepare(&path)).await?;
            let identity = Identity {
                cluster_id: match &config.cluster_id {
                    Some(cluster) => cluster.clone(),
                    None => Uuid::new_v4().to_string(),
                },
                member_id: FIRST_MEMBER,
                disk_id: Uuid::new_v4().to_string(),
            };
            let address = advertise.to_owned();
            (
                create(config, identity).await?,
                RuntimeStart::Bootstrap { address },
            )
        }
        (None, Start::Join(peers)) => {
            // A member that was taken in and then cannot begin would stay in the membership.
            let path = config.data_dir.clone();
            blocking(move || prepare(&path)).await?;
            let identity = request_membership(config, peers, advertise, dialer).await?;
            (create(config, identity).await?, RuntimeStart::Existing)
        }
    };
    let path = config.data_dir.clone();
    let level = Level(ServiceVersion(config.service_version));
    let opened =
        tokio::task::spawn_blocking(move || Runtime::open_at(level, settings, disk, start)).await;
    match opened.map_err(|error| Error::of_task(OPENING, error))? {
        Ok(runtime) => Ok(runtime),
        Err(OpenError::AlreadyStarted { cluster_id }) => Err(Error::AlreadyMember {
            path,
            cluster: cluster_id,
            member: FIRST_MEMBER,
        }),
        Err(error) => Err(error.into()),
    }
}

/// Returns the identity stored in a directory, without keeping it open.
fn look(path: &Path) -> Result<Option<Identity>, Error> {
    disk::expect_files(path)?;
    match identity::open(path) {
        Ok(claimed) => Ok(Some(claimed.identity)),
        Err(identity::Error::Missing { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Refuses a directory in which no member can begin.
fn prepare(path: &Path) -> Result<(), Error> {
    identity::expect_free(path)?;
    space::check(path, space::FREE_MIB_MIN).map_err(disk::Error::from)?;
    Ok(())
}

/// Refuses an existing directory that is not the one that was meant.
async fn existing(
    config: &Config,
    identity: &Identity,
    start: &Start,
    dialer: &Dialer,
) -> Result<(), Error> {
    if let Some(expected) = &config.cluster_id {
        identity::expect_cluster(&config.data_dir, identity, expected)?;
    }
    match start {
        Start::Restart => Ok(()),
        Start::Bootstrap if identity.member_id == FIRST_MEMBER => Ok(()),
        Start::Bootstrap => Err(Error::AlreadyMember {
            path: config.data_dir.clone(),
            cluster: identity.cluster_id.clone(),
            member: identity.member_id,
        }),
        // A member joins once. This query only catches a directory that was mixed up; if
        // no peer responds, the member starts and waits for the others.
        Start::Join(peers) => match join::cluster_of(peers, dialer).await {
            Some((peer, expected)) if expected != identity.cluster_id => Err(Error::OtherCluster {
                path: config.data_dir.clone(),
                own: identity.cluster_id.clone(),
                peer,
                expected,
            }),
            Some(_) | None => Ok(()),
        },
    }
}

async fn request_membership(
    config: &Config,
    peers: &[String],
    advertise: &str,
    dialer: &Dialer,
) -> Result<Identity, Error> {
    // Before anything is requested: a member that was added would stay in the other cluster.
    if let Some(expected) = &config.cluster_id
        && let Some((peer, cluster)) = join::cluster_of(peers, dialer).await
        && cluster != *expected
    {
        return Err(Error::PeerOfOtherCluster {
            peer,
            cluster,
            expected: expected.clone(),
        });
    }
    let path = config.data_dir.clone();
    let fresh = Uuid::new_v4().to_string();
    let disk_id = blocking(move || Ok(identity::joining_disk(&path, &fresh)?)).await?;
    let place = join::join(peers, advertise, &disk_id, config.service_version, dialer)
        .await
        .map_err(|what| Error::Join {
            peers: peers.join(", "),
            what,
        })?;
    let identity = Identity {
        cluster_id: place.cluster_id,
        member_id: place.member_id,
        disk_id,
    };
    if let Some(expected) = &config.cluster_id {
        identity::expect_cluster(&config.data_dir, &identity, expected)?;
    }
    Ok(identity)
}

async fn create(config: &Config, identity: Identity) -> Result<FileDisk, Error> {
    let path = config.data_dir.clone();
    blocking(move || Ok(FileDisk::create(&path, identity)?)).await
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(Error::of_task(OPENING, error)),
    }
}
