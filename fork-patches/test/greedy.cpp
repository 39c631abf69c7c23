// Greedy decoding of token ids with llama.h, set up as the publisher's own tool is:
// f32 KV cache, no flash attention, the prompt in one batch, ties to the lowest id,
// no stop ids. Prints one line of ids a prompt, and the speed on stderr.
//
// usage: greedy MODEL PROMPTS STEPS THREADS [GPU_LAYERS]
//   PROMPTS: one line a prompt, decimal ids separated by commas
#include "llama.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

static llama_token argmax(const float * logits, int n) {
    int best = 0;
    for (int i = 1; i < n; i++) {
        if (logits[i] > logits[best]) {
            best = i;
        }
    }
    return best;
}

static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int main(int argc, char ** argv) {
    if (argc < 5) {
        fprintf(stderr, "usage: greedy MODEL PROMPTS STEPS THREADS [GPU_LAYERS]\n");
        return 2;
    }
    const int steps = atoi(argv[3]);

    std::vector<std::vector<llama_token>> prompts;
    std::ifstream file(argv[2]);
    size_t longest = 0;
    for (std::string line; std::getline(file, line);) {
        std::vector<llama_token> ids;
        std::istringstream in(line);
        for (std::string id; std::getline(in, id, ',');) {
            ids.push_back(atoi(id.c_str()));
        }
        if (!ids.empty()) {
            longest = std::max(longest, ids.size());
            prompts.push_back(ids);
        }
    }
    if (prompts.empty()) {
        fprintf(stderr, "greedy: error: no prompts in \"%s\"\n", argv[2]);
        return 1;
    }

    // warnings and errors only
    llama_log_set([](ggml_log_level level, const char * text, void *) {
        if (level == GGML_LOG_LEVEL_WARN || level == GGML_LOG_LEVEL_ERROR) {
            fputs(text, stderr);
        }
    }, nullptr);
    ggml_backend_load_all();
    llama_model_params mp = llama_model_default_params();
    mp.n_gpu_layers = argc > 5 ? atoi(argv[5]) : 0;
    mp.check_tensors = true;
    llama_model * model = llama_model_load_from_file(argv[1], mp);
    if (!model) {
        return 1;
    }
    const int n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));

    llama_context_params cp = llama_context_default_params();
    cp.n_ctx = longest + steps + 8;
    cp.n_batch = cp.n_ubatch = cp.n_ctx;
    cp.n_threads = cp.n_threads_batch = atoi(argv[4]);
    cp.type_k = cp.type_v = GGML_TYPE_F32;
    cp.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    cp.no_perf = true;
    llama_context * ctx = llama_init_from_model(model, cp);
    if (!ctx) {
        return 1;
    }

    double prompt_seconds = 0, step_seconds = 0, step_cpu = 0; // CPU: of all threads together
    size_t prompt_tokens = 0, step_tokens = 0;
    for (std::vector<llama_token> & ids : prompts) {
        llama_memory_clear(llama_get_memory(ctx), true);
        double start = now();
        if (llama_decode(ctx, llama_batch_get_one(ids.data(), ids.size())) != 0) {
            fprintf(stderr, "greedy: error: the prompt was not decoded\n");
            return 1;
        }
        prompt_seconds += now() - start;
        prompt_tokens += ids.size();
        start = now();
        const std::clock_t cpu = std::clock();
        for (int i = 0; i < steps; i++) {
            llama_token id = argmax(llama_get_logits_ith(ctx, -1), n_vocab);
            printf(i ? ",%d" : "%d", id);
            if (i + 1 < steps) {
                if (llama_decode(ctx, llama_batch_get_one(&id, 1)) != 0) {
                    fprintf(stderr, "greedy: error: step %d was not decoded\n", i);
                    return 1;
                }
                step_tokens++;
            }
        }
        printf("\n");
        step_seconds += now() - start;
        step_cpu += (double) (std::clock() - cpu)/CLOCKS_PER_SEC;
    }
    fprintf(stderr, "greedy: %zu prompts, %s threads: prompt %.1f tokens/s, decode %.1f tokens/s, %.1f per second of CPU time\n",
        prompts.size(), argv[4], prompt_tokens/prompt_seconds, step_tokens/step_seconds, step_tokens/step_cpu);
    llama_free(ctx);
    llama_model_free(model);
}
