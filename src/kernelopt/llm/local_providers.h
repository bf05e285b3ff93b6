// Providers that need no network: a command, a mailbox, a recording.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "kernelopt/llm/provider.h"

namespace kernelopt {

// Runs `sh -c COMMAND` in a process group of its own, the system text and the prompt on its standard input; its standard
// output is the answer. A status other than 0 is a failure that may be tried again, and so is a time-out, which kills the group.
std::unique_ptr<Provider> command_provider(std::string command);

// Writes FOLDER/prompts/<id>.md and waits for FOLDER/answers/<id>.md. Ids hold purpose and digest, so that the same question
// finds an answer given earlier. Both files appear whole (written aside, then renamed).
std::unique_ptr<Provider> mailbox_provider(std::filesystem::path folder);

// For people and scripts at the other end of a mailbox.
struct MailboxPrompt {
  std::string id, text;
};
Result<std::vector<MailboxPrompt>> open_prompts(const std::filesystem::path& folder);  // without an answer, oldest first
// The only open prompt when `id` is empty. kBadInput where there is no such prompt or it has an answer.
Status answer_prompt(const std::filesystem::path& folder, const std::string& id, const std::string& text);

// Answers from a recording (client.h): the same purpose and texts get the same answers, in their order. A request that was
// not recorded is a failure for good.
Result<std::unique_ptr<Provider>> replay_provider(const std::filesystem::path& file);

// Asks `inner` only what an earlier part of the run did not: a resumed search takes the same way. A recording that cannot be
// read counts as empty.
std::unique_ptr<Provider> resuming_provider(std::shared_ptr<Provider> inner, const std::filesystem::path& file);

// Identity of a request.
std::string request_digest(const ModelRequest& request);

}  // namespace kernelopt
