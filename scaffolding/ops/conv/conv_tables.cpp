#include "scaffolding/ops/conv/kernel.h"

namespace sf {

constinit KernelTable<ConvForward> conv_forward{"conv_forward"};
constinit KernelTable<PreparedConvForward> prepared_conv_forward{"prepared_conv_forward"};
constinit KernelTable<NarrowConvForward> narrow_conv_forward{"narrow_conv_forward"};
constinit KernelTable<ConvBackwardData> conv_backward_data{"conv_backward_data"};
constinit KernelTable<ConvBackwardWeights> conv_backward_weights{"conv_backward_weights"};

}  // namespace sf
