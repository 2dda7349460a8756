//! Deletes files of images that the cluster does not need any more.
//!
//! Invariant: a file is deleted only after the leader has answered for as long as is configured that it is of
//! no image and of no VM of the cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use berth_domain::image::ImageFile;
use berth_domain::refusal::Refusal;
use berth_proto::client::SchedulerChannel;
use berth_proto::image::v1::FindUnusedImageFilesRequest;
use berth_proto::image::v1::image_service_client::ImageServiceClient;
use berth_proto::status::from_status;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::ImageStore;

/// How many files are named at a time.
const FILES_MAX: usize = 1000;

/// The longest time between two looks.
const PERIOD_MAX: Duration = Duration::from_secs(300);

/// The shortest.
const PERIOD_MIN: Duration = Duration::from_millis(200);

/// Deletes files of images that the cluster does not need any more.
pub(crate) struct Collector {
    pub(crate) store: ImageStore,
    pub(crate) scheduler: SchedulerChannel,
    /// For how long a file is kept that is not needed.
    pub(crate) retention: Duration,
}

impl Collector {
    /// Looks again and again, until `stopping` is cancelled.
    pub(crate) async fn run(self, stopping: CancellationToken) {
        tokio::select! {
            () = stopping.cancelled() => {}
            () = self.look_always() => {}
        }
    }

    async fn look_always(&self) {
        let period = (self.retention / 4).clamp(PERIOD_MIN, PERIOD_MAX);
        let mut unused = BTreeMap::new();
        loop {
            sleep(period).await;
            if let Err(refusal) = self.look(&mut unused).await {
                tracing::warn!(%refusal, "it is not known which images are not needed");
            }
        }
    }

    async fn look(&self, unused: &mut BTreeMap<ImageFile, Instant>) -> Result<(), Refusal> {
        let here = self.blocking(ImageStore::files).await?;
        let mut not_needed = BTreeSet::new();
        for files in here.chunks(FILES_MAX) {
            not_needed.extend(self.unused(files).await?);
        }
        unused.retain(|file, _| not_needed.contains(file));
        let now = Instant::now();
        for file in not_needed {
            let since = *unused.entry(file.clone()).or_insert(now);
            if now.duration_since(since) < self.retention {
                continue;
            }
            let deleted = file.clone();
            match self.blocking(move |store| store.remove(&deleted)).await {
                Ok(()) => tracing::info!(image = %file, "an image that is not needed is deleted"),
                Err(refusal) => tracing::warn!(image = %file, %refusal, "an image is not deleted"),
            }
        }
        Ok(())
    }

    /// Returns those files that the cluster does not need.
    async fn unused(&self, files: &[ImageFile]) -> Result<Vec<ImageFile>, Refusal> {
        let request = FindUnusedImageFilesRequest {
            file_names: files.iter().map(ImageFile::to_string).collect(),
        };
        let answer = self.scheduler.call(|channel| {
            let request = request.clone();
            async move {
                ImageServiceClient::new(channel)
                    .find_unused_image_files(request)
                    .await
            }
        });
        let response = answer.await.map_err(|status| from_status(&status))?;
        let named = response.file_names.iter().map(|name| name.parse());
        Ok(named.flatten().collect())
    }

    /// Works with the files on a thread that may block.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&ImageStore) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let store = self.store.clone();
        let done = tokio::task::spawn_blocking(move || work(&store)).await;
        done.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
    }
}
