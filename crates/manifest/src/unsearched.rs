//! Folders below an application, which are not searched for other ones.

use driftless_files::Entry;

use crate::{
    discover::{Configured, FolderContent, Search},
    unreadable::{UnreadContent, unread_content},
};

impl Search<'_> {
    /// The manifests, the files of variables that name Compose files, and the submodules in the folders below that of an application:
    /// all because of which a folder would be an application without the one above. Also a folder that cannot be listed.
    pub(crate) fn unsearched_below(&self, folder: &str, depth: usize) -> Vec<String> {
        match self.folder(folder) {
            Ok(entries) => self.unsearched_in(folder, &entries.unwrap_or_default(), depth),
            Err(_) => vec![folder.to_owned()],
        }
    }

    fn unsearched_in(&self, folder: &str, entries: &[(String, Entry)], depth: usize) -> Vec<String> {
        let mut found = Vec::new();
        for (name, entry) in entries {
            let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            match entry {
                Entry::Folder if depth > 0 && !name.starts_with('.') => match self.folder(&path) {
                    Ok(inside) => {
                        let inside = inside.unwrap_or_default();
                        found.extend(self.manifests_in(&path, &inside));
                        found.extend(self.unsearched_in(&path, &inside, depth - 1));
                    }
                    Err(_) => found.push(path),
                },
                Entry::Submodule => found.push(path),
                Entry::Folder | Entry::File { .. } => {}
            }
        }
        found
    }

    /// The files because of which a folder would be an application. Files of other tools and those that cannot be read may have been
    /// manifests.
    fn manifests_in(&self, folder: &str, entries: &[(String, Entry)]) -> Vec<String> {
        match self.content(folder, entries) {
            FolderContent::Application(_, files, _)
            | FolderContent::Component(files)
            | FolderContent::OtherTools(files)
            | FolderContent::BrokenLinks(files) => files,
            FolderContent::Unreadable(mut files) => {
                files.retain(|path| unread_content(self.files, path) != UnreadContent::Other);
                files
            }
            FolderContent::Nothing => {
                let names = entries.iter().map(|(name, _)| name).filter(|name| name.starts_with(".env"));
                let variables: Vec<String> = names.map(|name| format!("{folder}/{name}")).collect();
                let is_application = !variables.is_empty()
                    && self.named_by_variables(folder, &Configured::default()).is_some();
                if is_application { variables } else { Vec::new() }
            }
        }
    }
}
