// Answers a question with the model that the command line names.
#include <iostream>

#include "pocketlm/pocketlm.hpp"

int main(int argc, char** argv) try {
  if (argc != 2) return 2;
  const plm::Model model = plm::Model::Load(argv[1]);
  plm::Session session(model);
  session.SetChat(R"([{"role": "user", "content": "What is gravity?"}])");
  plm_generate_options options = plm_generate_options_default();
  options.max_tokens = 100;
  session.Generate(&options, [](std::string_view piece) {
    std::cout << piece << std::flush;
    return true;
  });
} catch (const plm::Error& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
