// Runs a kernel on the CPU, the threads of a block taking turns at barriers, votes and shuffles (gpu_emulator.h).
#include <ucontext.h>

#include <cstdlib>
#include <cstring>
#include <vector>

struct Index {
    unsigned x;
};
struct Batch {
    unsigned char bytes[304];
};
using Kernel = void (*)(Batch);

// Of a block, or of a warp's votes. `answer` of the last round stays while the next one is under way.
struct Meeting {
    unsigned count, round, votes, answer[2];
};

extern "C" {
Index threadIdx, blockIdx, gridDim;
alignas(64) unsigned char shared_memory[232448];  // dynamic shared memory, what an H200 has
}

static ucontext_t scheduler;
static std::vector<ucontext_t> contexts;
static std::vector<char> done;
static unsigned current, block_threads;
static Meeting block_meeting, warp_meetings[32];
static unsigned shuffled[2][32][32];  // words of the last two rounds, of every warp's lanes
static Kernel kernel;
static Batch argument;

static unsigned meet(Meeting& meeting, unsigned members, unsigned votes) {
    const unsigned round = meeting.round;
    meeting.votes |= votes;
    if (++meeting.count == members) {
        meeting.answer[round & 1] = meeting.votes;
        meeting.count = meeting.votes = 0;
        meeting.round++;
    } else {
        while (meeting.round == round) {
            const unsigned self = current;
            swapcontext(&contexts[self], &scheduler);
        }
    }
    return meeting.answer[round & 1];
}

extern "C" void emulated_barrier() { meet(block_meeting, block_threads, 0); }

extern "C" unsigned emulated_ballot(int vote) {
    return meet(warp_meetings[current / 32], 32, (unsigned)(vote != 0) << current % 32);
}

extern "C" unsigned emulated_or(unsigned word) { return meet(warp_meetings[current / 32], 32, word); }

extern "C" unsigned emulated_shuffle_xor(unsigned word, unsigned distance) {
    const unsigned warp = current / 32, lane = current % 32, side = warp_meetings[warp].round & 1;
    shuffled[side][warp][lane] = word;
    meet(warp_meetings[warp], 32, 0);
    return shuffled[side][warp][lane ^ distance];
}

static void thread_main() {
    kernel(argument);
    done[current] = 1;
    swapcontext(&contexts[current], &scheduler);
}

// 0 when the kernel has ended, 1 where its threads wait for one another for ever.
extern "C" int emulated_launch(Kernel launched, const Batch* batch, unsigned grid, unsigned threads) {
    constexpr size_t STACK = 1 << 17;
    kernel = launched;
    argument = *batch;
    block_threads = threads;
    gridDim.x = grid;
    char* const stacks = (char*)malloc(STACK * threads);
    bool stuck = false;
    for (unsigned block = 0; block < grid && !stuck; block++) {
        blockIdx.x = block;
        memset(shared_memory, 0xa5, sizeof shared_memory);
        block_meeting = {};
        memset(warp_meetings, 0, sizeof warp_meetings);
        contexts.assign(threads, ucontext_t{});
        done.assign(threads, 0);
        for (unsigned i = 0; i < threads; i++) {
            getcontext(&contexts[i]);
            contexts[i].uc_stack.ss_sp = stacks + STACK * i;
            contexts[i].uc_stack.ss_size = STACK;
            contexts[i].uc_link = &scheduler;
            makecontext(&contexts[i], thread_main, 0);
        }
        unsigned left = threads;
        for (unsigned turns = 0; left && !stuck; turns++) {
            for (unsigned i = 0; i < threads; i++) {
                if (done[i]) continue;
                current = threadIdx.x = i;
                swapcontext(&scheduler, &contexts[i]);
                left -= done[i];
            }
            stuck = turns > 1000000;
        }
    }
    free(stacks);
    return stuck;
}
